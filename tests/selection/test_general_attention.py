import numpy as np
import pytest

from tests.support.session import check, model_of
from tests.support.targets import TARGETS, compiled_for

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

RANDOM = np.random.default_rng(0)


def attentions(*shapes):
    """Attentions of (heads, queries, keys), 16 elements each, side by side."""
    text = [
        f"t{k} = Transpose<perm=[0, 1, 3, 2]>(k{k}) s{k} = MatMul(q{k}, t{k}) "
        f"m{k} = Mul(s{k}, scale) p{k} = Softmax<axis=-1>(m{k}) y{k} = MatMul(p{k}, v{k})"
        for k in range(len(shapes))
    ]
    inputs, feeds = [], {}
    for k, (heads, queries, keys) in enumerate(shapes):
        for name, length in (f"q{k}", queries), (f"k{k}", keys), (f"v{k}", keys):
            shape = 2, heads, length, 16
            inputs.append(f"float[{', '.join(map(str, shape))}] {name}")
            feeds[name] = RANDOM.normal(0, 1, shape).astype(np.float32)
    results = ", ".join(f"float[b, h{k}, r{k}, 16] y{k}" for k in range(len(shapes)))
    model = model_of(
        f"g ({', '.join(inputs)}) => ({results}) {{ {' '.join(text)} }}",
        {"scale": np.float32(0.25)},
    )
    return model, feeds


# Name -> attentions, kernels. Blocks have 96 queries: what is left over decides on the tiles.
CASES = {
    "stages": (((2, 352, 64), (5, 160, 64), (8, 64, 64)), 1),
    "other tiles": (((2, 352, 64), (2, 49, 64)), 2),
    "other keys": (((2, 96, 64), (2, 96, 48)), 2),
    "few queries": (((2, 3, 64), (4, 3, 64)), 2),
}


@pytest.mark.parametrize("name", CASES)
def test_attentions_of_other_sizes_are_right_and_share_a_kernel(name):
    shapes, kernels = CASES[name]
    model, feeds = attentions(*shapes)
    check(model, [feeds])
    for target in TARGETS:
        calls = compiled_for(model, TARGETS[target]).main.calls
        names = [c.kernel for c in calls if c.kernel.startswith("attention")]
        assert len(names) == len(shapes), target
        assert len(set(names)) == kernels, target
