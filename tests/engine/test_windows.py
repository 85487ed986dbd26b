"""Windows over channels: results of neighbours are computed together, borders apart."""

import numpy as np
import pytest

import sardonyx
from sardonyx.kernel.loops import loop_nest_schedule
from sardonyx.kernel.loops.register_blocking import choose_blocks
from sardonyx.plan.axes import extent_of
from tests.support.session import check, model_of

_random = np.random.default_rng(5)


def _values(shape):
    return _random.standard_normal(shape).astype(np.float32)


#: attributes of a depthwise convolution, its kernel, image sizes
CONVOLUTIONS = {
    "same": ("pads = [1, 1, 1, 1]", (3, 3), [(9, 1), (5, 7), (8, 8), (1, 30), (14, 19)]),
    "step 2": ("pads = [0, 0, 1, 1], strides = [2, 2]", (3, 3), [(9, 9), (16, 33), (2, 2)]),
    "large": ("pads = [3, 3, 3, 3]", (7, 7), [(7, 7), (1, 1), (6, 25), (12, 12)]),
    "five": ("pads = [2, 2, 2, 2], strides = [1, 2]", (5, 5), [(7, 7), (3, 29)]),
    "dilated": ("pads = [6, 6, 6, 6], dilations = [6, 6]", (3, 3), [(7, 7), (20, 26), (3, 40)]),
    "no border": ("", (3, 3), [(3, 3), (4, 20), (11, 10)]),
    "much border": ("pads = [2, 9, 3, 20]", (3, 3), [(2, 2), (5, 9)]),
    "a row": ("pads = [0, 1, 0, 1]", (1, 3), [(1, 17), (3, 8)]),
    "a column": ("pads = [1, 0, 1, 0]", (3, 1), [(17, 1), (8, 3), (40, 5)]),
}


def _depthwise(attributes, kernel, size, last):
    """A depthwise convolution; with channels `last`, between two others."""
    first, second = "t = Conv(x, w1)" if last else "t = Identity(x)", "y = Conv(s, w1)"
    text = f"""g (float[n, 20, {size}] x) => (float[n, 20, h, w] y)
    {{ {first} a = Conv<group = 20{attributes and ", "}{attributes}>(t, w0, b)
    s = HardSwish(a) {second if last else "y = Identity(s)"} }}"""
    weights = {"w0": (20, 1, *kernel), "b": (20,), "w1": (20, 20, 1, 1)}
    return model_of(text, {name: _values(shape) / 3 for name, shape in weights.items()})


@pytest.mark.parametrize("attributes, kernel, images", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_depthwise(attributes, kernel, images):
    for number, (h, w) in enumerate(images[:2]):
        model = _depthwise(attributes, kernel, f"{h}, {w}", number == 0)
        check(model, [{"x": _values((2, 20, h, w))}])
    feeds = [{"x": _values((n, 20, h, w))} for n, (h, w) in enumerate(images)]
    check(_depthwise(attributes, kernel, "H, W", True), feeds)


@pytest.mark.parametrize(
    "node",
    [
        "MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(t)",
        "MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(t)",
        "AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(t)",
        "AveragePool<kernel_shape = [5, 2], pads = [2, 0, 2, 1], count_include_pad = 1>(t)",
    ],
)
@pytest.mark.parametrize("size", ["19, 23", "h, w"])
def test_pooling(node, size):
    text = f"""g (float[n, 24, {size}] x) => (float[n, 24, oh, ow] y)
    {{ t = Conv(x, w0) y = {node} }}"""
    model = model_of(text, {"w0": _values((24, 24, 1, 1))})
    check(model, [{"x": _values((1, 24, 19, 23))}])


def test_a_window_of_whole_numbers():
    text = """g (int8[2, 32, 9, 21] x) => (int8[n, 32, oh, ow] y)
    { y = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x) }"""
    x = _random.integers(-128, 0, (2, 32, 9, 21)).astype(np.int8)
    wide = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-128)
    want = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3)).max((4, 5))
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)


@pytest.mark.parametrize("size, parts", [("9, 21", 3), ("9, w", 1)])
def test_neighbours_share_a_block(size, parts, monkeypatch):
    monkeypatch.setenv("SARDONYX_CACHE", "off")
    found = []

    def watch(*arguments, **options):
        found.append(choose_blocks(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(loop_nest_schedule, "choose_blocks", watch)
    model = _depthwise("pads = [1, 1, 1, 1]", (3, 3), size, True)
    sardonyx.InferenceSession(model.SerializeToString())
    assert parts in {len(blocks.parts) for blocks in found if blocks is not None}


def test_an_axis_of_whole_blocks_of_unknown_number():
    """Two axes are one of 4 h places: no block has fewer, and none sees a border."""
    text = """g (double[n, 3, 6, h, w] x) => (double[n, 1, 4, h, v] y)
    { y = Conv<strides = [1, 1, 3], dilations = [2, 2, 2], auto_pad = "VALID">(x, k) }"""
    model = model_of(text, {"k": _values((1, 3, 2, 1, 2)).astype(np.float64)}, 11)
    sizes = [(1, 7, 8), (1, 3, 6), (2, 9, 7), (1, 1, 3)]
    check(model, [{"x": _values((n, 3, 6, h, w)).astype(np.float64)} for n, h, w in sizes])


@pytest.mark.parametrize(
    "attributes, kernel, last, rows",
    [
        ("pads = [2, 2, 2, 2]", (5, 5), True, 5),
        ("pads = [0, 1, 0, 1]", (1, 3), True, 0),
        ("pads = [1, 1, 1, 1]", (3, 3), False, 0),  # neighbours along columns share rows of taps
    ],
)
def test_rows_of_taps_are_a_loop(attributes, kernel, last, rows, monkeypatch):
    monkeypatch.setenv("SARDONYX_CACHE", "off")
    found = []
    choose = loop_nest_schedule.LoopNestSchedule._choose_window

    def watch(schedule, block_sizes):
        window = choose(schedule, block_sizes)
        if window is not None:
            loop = 0 if schedule.tap_rows == 0 else extent_of(schedule.tap_rows)
            written = {len(m.unrolled) for m in schedule.nest.members if m.unrolled}
            found.append((loop, written))
        return window

    monkeypatch.setattr(loop_nest_schedule.LoopNestSchedule, "_choose_window", watch)
    model = _depthwise(attributes, kernel, "11, 14", last)
    sardonyx.InferenceSession(model.SerializeToString())
    taps = kernel[0] * kernel[1]
    assert found
    assert all(one == (rows, {taps // max(1, rows)}) for one in found)
    found.clear()
    tokens = model_of(
        """g (float[1, 154, 32] x) => (float[1, 32, h, w] y)
        { t = Transpose<perm = [0, 2, 1]>(x) u = Reshape(t, s)
        y = Conv<group = 32, pads = [1, 1, 1, 1]>(u, k) }""",
        {"s": np.array([1, 32, 11, 14]), "k": _values((32, 1, 3, 3))},
    )
    check(tokens, [{"x": _values((1, 154, 32))}])
    assert (3, {3}) in found


@pytest.mark.parametrize("size, together", [(7, True), (3, False)])
def test_a_long_plain_window_takes_vectors_in_step(size, together, monkeypatch):
    monkeypatch.setenv("SARDONYX_CACHE", "off")
    found = []

    choose = loop_nest_schedule.LoopNestSchedule._vectors_together

    def watch(schedule, block_sizes):
        found.append(choose(schedule, block_sizes))
        return found[-1]

    monkeypatch.setattr(loop_nest_schedule.LoopNestSchedule, "_vectors_together", watch)
    text = f"""g (float[2, 64, {size}, {size}] x) => (float[2, 64, 1, 1] y)
    {{ t = Conv(x, w) y = GlobalAveragePool(t) }}"""
    model = model_of(text, {"w": _values((64, 64, 1, 1))})
    sardonyx.InferenceSession(model.SerializeToString())
    assert (max(found) > 1) == together
    check(model, [{"x": _values((2, 64, size, size))}])
