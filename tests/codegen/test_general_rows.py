import numpy as np
import pytest

from sardonyx.codegen.target import host_target
from sardonyx.loader.load import load as load_model
from sardonyx.ops.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.runtime.build import compile_lowered
from tests.support.session import check, model_of

RANDOM = np.random.default_rng(0)


def weights(*shape):
    """Small whole numbers: sums are exact in any order."""
    return RANDOM.integers(-2, 3, shape).astype(np.float32)


def depthwise(channels, *steps, taps=3, pads=1):
    """Convolutions of each channel for itself, one after the other, between products."""
    text, held, last = [], {}, "a"
    for k, step in enumerate(steps):
        attributes = (
            f"group={channels}, strides=[{step}, {step}], pads=[{', '.join([str(pads)] * 4)}]"
        )
        text += [f"d{k} = Conv<{attributes}>({last}, v{k})", f"r{k} = Relu(d{k})"]
        held[f"v{k}"] = weights(channels, 1, taps, taps)
        last = f"r{k}"
    held |= {"u": weights(channels, 8, 1, 1), "w": weights(8, channels, 1, 1)}
    return f"a = Conv(x, u) {' '.join(text)} y = Conv({last}, w)", held


# Name -> body, weights, shape of the image, kernels of windows.
MODELS = {
    "halved": (*depthwise(32, 1, 2, 1, 2, 1), (1, 8, 56, 56), 2),
    "one block": (*depthwise(32, 1, 2, 1), (1, 8, 14, 14), 3),
    "oblong": (*depthwise(48, 1, 2), (2, 8, 5, 28), 2),
    "no whole blocks": (*depthwise(32, 1, 1), (1, 8, 11, 13), 1),
    "long windows": (*depthwise(16, 1, 2, taps=5, pads=2), (1, 8, 28, 28), 2),
    "no borders": (*depthwise(16, 1, 2, pads=0), (1, 8, 30, 16), 2),
    "part of a vector": (*depthwise(20, 1, 2), (1, 8, 28, 28), 2),
    "pool": (
        "a = Conv(x, u) b = MaxPool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>(a) "
        "c = MaxPool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(b) "
        "d = AveragePool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(c) y = Conv(d, w)",
        {"u": weights(32, 8, 1, 1), "w": weights(8, 32, 1, 1)},
        (1, 8, 28, 28),
        3,
    ),
}


def model(name):
    body, held, shape, _ = MODELS[name]
    declared = ", ".join(map(str, shape))
    return model_of(f"g (float[{declared}] x) => (float[n, 8, h, w] y) {{ {body} }}", held)


@pytest.mark.parametrize("name", MODELS)
def test_windows_of_other_sizes_are_right(name):
    check(model(name), [{"x": weights(*MODELS[name][2])}])


@pytest.mark.parametrize("name", MODELS)
def test_windows_that_differ_in_their_sizes_share_a_kernel(name):
    graph = load_model(model(name).SerializeToString())
    optimise(graph)
    compiled, _ = compile_lowered(graph, lower(graph), host_target())
    kernels = {c.kernel for c in compiled.main.calls if c.kernel.startswith("rows")}
    assert 1 <= len(kernels) <= MODELS[name][3]
