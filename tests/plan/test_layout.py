"""Which axis of a value is innermost."""

import numpy as np
import pytest

from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.plan.grouping import make_groups
from sardonyx.plan.groups import LoopNest
from sardonyx.plan.inline import find_roots
from sardonyx.plan.pipeline import PlanSettings, arrange
from tests.support.session import model_of

#: nodes between two convolutions, of which one reads its image in some other place
RESIZED = [
    'Resize<mode = "linear">(t, , scales)',
    'Resize<mode = "nearest">(t, , scales)',
    "MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(t)",
    "Relu(t)",
]


@pytest.mark.parametrize("node", RESIZED)
def test_images_between_convolutions_have_channels_last(node):
    text = f"""g (float[1, 40, 16, 16] x) => (float[1, 40, h, w] y)
    {{ t = Conv(x, w0) u = {node} v = Tanh(u) y = Conv(v, w0) }}"""
    weights = {"w0": np.zeros((40, 40, 1, 1), "f"), "scales": np.array([1, 1, 2, 2], "f")}
    graph = load(model_of(text, weights).SerializeToString())
    optimise(graph)
    groups = make_groups(find_roots(list(lower(graph).outputs.values())))
    orders = arrange(groups, PlanSettings()).orders
    between = [r for g in groups if isinstance(g, LoopNest) for r in g.roots if not r.never_changes]
    wide = [r for r in between if len(r.buffer.shape) == 4]
    assert all(orders[r.buffer][-1] == 1 for r in wide)
    assert wide or node == "Relu(t)"


def test_shuffled_channels_are_moved_once():
    """A depthwise convolution would gather them for each of its taps."""
    text = """g (float[1, 40, h, w] x) => (float[1, 40, h, w] y)
    <int64[5] a = {0, 2, 20, -1, 8}, int64[4] b = {0, 40, -1, 8}> {
        r = Reshape(x, a) t = Transpose<perm = [0, 2, 1, 3, 4]>(r) s = Reshape(t, b)
        y = Conv<pads = [1, 1, 1, 1], group = 40>(s, w0)
    }"""
    graph = load(model_of(text, {"w0": np.zeros((40, 1, 3, 3), "f")}).SerializeToString())
    optimise(graph)
    roots = find_roots(list(lower(graph).outputs.values()))
    assert len([r for r in roots if not r.never_changes]) == 2


def test_transposed_convolutions_keep_channels_last():
    """Rows and phases make up an axis of pixels: it is no axis of columns."""
    text = """g (float[1, 40, 8, 8] x, float[1, 40, 16, 16] z) => (float[1, 40, 16, 16] y) {
        t = ConvTranspose<strides = [2, 2]>(x, w1, b1) s = Conv(z, w0)
        c = Concat<axis = 1>(t, s) y = Conv(c, w2)
    }"""
    shapes = {"w0": (40, 40, 1, 1), "w1": (40, 40, 2, 2), "w2": (40, 80, 1, 1), "b1": (40,)}
    weights = {name: np.zeros(shape, "f") for name, shape in shapes.items()}
    graph = load(model_of(text, weights).SerializeToString())
    optimise(graph)
    groups = make_groups(find_roots(list(lower(graph).outputs.values())))
    orders = arrange(groups, PlanSettings()).orders
    images = [r for g in groups for r in g.roots if r.buffer.shape[2:] == (16, 16)]
    assert len(images) == 4
    assert all(orders[r.buffer] == (0, 2, 3, 1) for r in images if not r.is_output)


@pytest.mark.parametrize("batch", ["n", "8"])
def test_flattened_images_keep_their_order(batch):
    """Channels and pixels are one axis, along which a linear layer's rows lie."""
    text = f"""g (float[{batch}, 3, 16, 16] x) => (float[{batch}, 10] y) {{
        c = Conv<pads = [1, 1, 1, 1]>(x, w0) r = Relu(c) f = Flatten(r) y = MatMul(f, w1)
    }}"""
    weights = {"w0": np.zeros((32, 3, 3, 3), "f"), "w1": np.zeros((8192, 10), "f")}
    graph = load(model_of(text, weights).SerializeToString())
    optimise(graph)
    groups = make_groups(find_roots(list(lower(graph).outputs.values())))
    arranged = arrange(groups, PlanSettings(lanes=16))
    groups, orders = arranged.groups, arranged.orders
    (image, result) = (r for g in groups for r in g.roots if not r.never_changes)
    assert orders[image.buffer] == (0, 1) and image.buffer.shape[1] == 8192
    (linear,) = (g for g in groups if result in g.roots)
    assert linear.right.tensor.shape == (8192, 10), "a batch may be one"
