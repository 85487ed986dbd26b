"""Convolutions of 3 by 3 taps through Winograd's filters, against float64."""

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.base.errors import InvalidArgument
from tests.support.session import check, model_of
from tests.support.targets import TARGETS, compiled_for
from tests.support.tolerances import assert_near

_random = np.random.default_rng(11)

#: channels, filters, groups, pads, image as declared, images that are fed, outputs of a tile, and
#: how far taps are apart
CASES = {
    "whole tiles": (16, 16, 1, (1, 1, 1, 1), "32, 32", [(32, 32)], 4),
    "tiles over the edge": (32, 64, 1, (1, 1, 1, 1), "13, 30", [(13, 30)], 4),
    "no padding": (32, 32, 1, (0, 0, 0, 0), "h, w", [(3, 3), (5, 6), (17, 33)], 4),
    "uneven padding": (20, 36, 1, (0, 1, 2, 1), "h, w", [(1, 1), (8, 3), (18, 7)], 4),
    "wide padding": (16, 24, 1, (2, 3, 2, 2), "h, w", [(4, 5), (1, 2)], 4),
    "groups": (64, 96, 2, (1, 0, 1, 2), "29, 21", [(29, 21)], 4),
    "deep and small": (256, 256, 1, (1, 1, 1, 1), "7, 7", [(7, 7)], 2),
    "inputs that do not stay in a cache": (640, 128, 1, (1, 1, 1, 1), "28, 28", [(28, 28)], 4),
    "columns of several panels": (16, 200, 1, (1, 1, 1, 1), "40, 44", [(40, 44)], 4),
    "few filters": (48, 13, 1, (1, 1, 1, 1), "30, 21", [(30, 21)], 4),
    "few filters in groups": (40, 14, 2, (1, 1, 1, 1), "h, w", [(5, 6), (17, 33)], 4),
    "taps apart": (32, 32, 1, (2, 2, 2, 2), "26, 31", [(26, 31)], 4, (2, 2)),
    "taps apart along one axis": (20, 24, 1, (1, 3, 1, 3), "17, 50", [(17, 50)], 4, (1, 3)),
    "taps apart in any image": (
        24, 40, 1, (3, 1, 2, 4), "h, w", [(6, 2), (2, 1), (33, 29)], 4, (3, 2),
    ),
    "taps apart without padding": (16, 32, 1, (0, 0, 0, 0), "h, w", [(5, 9), (40, 33)], 4, (2, 4)),
    "taps apart along the other axis": (16, 24, 1, (3, 1, 3, 1), "19, 41", [(19, 41)], 4, (3, 1)),
    "taps apart in groups": (64, 48, 2, (5, 5, 5, 5), "40, 37", [(40, 37)], 4, (5, 5)),
    "taps apart, deep and small": (256, 256, 1, (3, 3, 3, 3), "6, 6", [(6, 6)], 2, (3, 3)),
}  # fmt: skip
#: Where another tile takes fewer cycles: a few short vectors.
OTHER_TILES = {("deep and small", "sse"): 4, ("deep and small", "neon"): 4}

_TEXT = """
g (float[n, {channels}, {image}] x) => (float[n, {filters}, oh, ow] y) {{
    s = Sigmoid(x)
    t = Conv(s, e)
    c = Conv<pads = {pads}, dilations = {apart}, group = {groups}>(t, w, b)
    r = Relu(c)
    y = Mul(r, two)
}}
"""


def _model(channels, filters, groups, pads, image, apart=(1, 1)):
    weights = {
        "e": np.eye(channels, dtype=np.float32)[:, :, None, None],
        "w": _random.standard_normal((filters, channels // groups, 3, 3)).astype(np.float32),
        "b": _random.standard_normal(filters).astype(np.float32),
        "two": np.float32(2),
    }
    text = _TEXT.format(
        channels=channels, filters=filters, groups=groups, pads=list(pads), image=image,
        apart=list(apart),
    )  # fmt: skip
    return model_of(text, weights).SerializeToString(), weights


def _wanted(x, weights, groups, pads, apart=(1, 1)):
    x = 1 / (1 + np.exp(-x.astype(np.float64)))
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    h, w = x.shape[2] - 2 * apart[0], x.shape[3] - 2 * apart[1]
    parts = []
    for data, filters in zip(np.split(x, groups, 1), np.split(weights["w"], groups), strict=True):
        total = 0.0
        for i in range(3):
            for j in range(3):
                low, left = i * apart[0], j * apart[1]
                window = data[:, :, low : low + h, left : left + w]
                tap = filters[:, :, i, j].astype(np.float64)
                sums = tap @ window.reshape(*window.shape[:2], h * w)
                total = total + sums.reshape(len(x), len(tap), h, w)
        parts.append(total)
    out = np.concatenate(parts, 1) + weights["b"][:, None, None]
    return 2 * np.maximum(out, 0)


def _session(model, **entries):
    options = sardonyx.SessionOptions()
    for key, value in entries.items():
        options.add_session_config_entry(f"session.{key}", value)
    return sardonyx.InferenceSession(model, options)


def _tiles(model, target):
    """Outputs of a tile along an axis, of each convolution with Winograd's filters."""
    calls = compiled_for(model, TARGETS[target]).main.calls
    named = [c.kernel.partition("_")[0] for c in calls if c.kernel.startswith("winograd")]
    return [int(name.removeprefix("winograd")) for name in named]


@pytest.mark.once
@pytest.mark.parametrize("name", CASES)
def test_tiles(name):
    channels, filters, groups, pads, image, _, outputs, *apart = CASES[name]
    model, _ = _model(channels, filters, groups, pads, image, *apart)
    for target in TARGETS:
        wanted = OTHER_TILES.get((name, target), outputs)
        assert _tiles(onnx.load_from_string(model), target) == [wanted], target


#: One thread goes from block to block as each of two does: a case of each tile shows it.
_ALONE = ["tiles over the edge", "deep and small", "columns of several panels"]


@pytest.mark.parametrize(
    ("name", "threads"), [*((name, 2) for name in CASES), *((name, 1) for name in _ALONE)]
)
def test_values(name, threads):
    channels, filters, groups, pads, image, images, _, *apart = CASES[name]
    model, weights = _model(channels, filters, groups, pads, image, *apart)
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    session = sardonyx.InferenceSession(model, options)
    assert "winograd" in session.explain()
    for n in (1, 3, 0):
        for size in images:
            x = _random.standard_normal((n, channels, *size)).astype(np.float32)
            (found,) = session.run(None, {"x": x})
            wanted = _wanted(x, weights, groups, pads, *apart)
            assert found.shape == wanted.shape
            assert_near(found, wanted, "float: Winograd's sums")


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("count", [1, 2])
def test_more_panels_than_chunks(groups, count):
    """A thread keeps the filters of a panel from block to block; that takes a known count."""
    pads, filters = (1, 1, 1, 1), 256 * groups
    text = _TEXT.replace("[n,", f"[{count},").format(
        channels=64 * groups, filters=filters, image="8, 8", pads=list(pads), apart=[1, 1],
        groups=groups,
    )  # fmt: skip
    _, weights = _model(64 * groups, filters, groups, pads, "8, 8")
    session = sardonyx.InferenceSession(model_of(text, weights).SerializeToString())
    assert "winograd" in session.explain()
    x = _random.standard_normal((count, 64 * groups, 8, 8)).astype(np.float32)
    wanted = _wanted(x, weights, groups, pads)
    (found,) = session.run(None, {"x": x})
    assert_near(found, wanted, "float: Winograd's sums")


def test_between_other_convolutions():
    """The result is read channels last: columns are stored side by side."""
    weights = {
        "e": _random.standard_normal((24, 20, 1, 1)).astype(np.float32),
        "w": _random.standard_normal((40, 24, 3, 3)).astype(np.float32),
        "f": np.eye(40, dtype=np.float32)[:, :, None, None],
    }
    text = """
    g (float[n, 20, h, w] x) => (float[n, 40, h, w] y) {
        a = Conv(x, e)
        b = Conv<pads = [1, 1, 1, 1]>(a, w)
        r = Relu(b)
        y = Conv(r, f)
    }"""
    session = _session(model_of(text, weights).SerializeToString())
    assert "winograd4" in session.explain()
    direct = _session(model_of(text, weights).SerializeToString(), disable_winograd="1")
    for size in ((1, 1), (4, 8), (9, 30)):
        x = _random.standard_normal((2, 20, *size)).astype(np.float32)
        (found,), (wanted,) = session.run(None, {"x": x}), direct.run(None, {"x": x})
        assert_near(found, wanted, "float: Winograd's sums")


@pytest.mark.parametrize(
    ("block", "channels", "mode"),
    [(3, 1, "CRD"), (3, 3, "CRD"), (3, 8, "CRD"), (2, 5, "CRD"), (5, 1, "CRD"),
     (3, 3, "DCR"), (2, 5, "DCR")],
)  # fmt: skip
def test_few_filters_become_pixels(block, channels, mode):
    """Lanes that stay empty are not stored, and those of one pixel lie apart."""
    weights = {
        "e": _random.standard_normal((32, 20, 1, 1)).astype(np.float32),
        "w": _random.standard_normal((block**2 * channels, 32, 3, 3)).astype(np.float32) / 17,
    }
    text = f"""
    g (float[n, 20, h, w] x) => (float[n, {channels}, p, q] y) {{
        a = Conv(x, e)
        b = Conv<pads = [1, 1, 1, 1]>(a, w)
        y = DepthToSpace<blocksize = {block}, mode = "{mode}">(b)
    }}"""
    sizes = ((1, 1), (7, 9), (20, 33), (3, 70))
    feeds = [{"x": _random.standard_normal((2, 20, *s)).astype(np.float32)} for s in sizes]
    # F(4, 3) rounds by 1e-5 of the largest sums, which here are some ten times most others.
    model = model_of(text, weights)
    check(model, feeds, tolerance="float: sums that cancel")
    for target in TARGETS:
        # 27 columns are fewer cycles as direct sums where vectors are short.
        is_direct = (block, channels) == (3, 3) and target in ("sse", "neon")
        assert _tiles(model, target) == ([] if is_direct else [4]), target


def test_what_lies_outside_an_image_does_not_matter():
    """Tiles reach over the edge, into the next image; what is there is never multiplied."""
    model, _ = _model(16, 16, 1, (0, 0, 0, 0), "h, w")
    session = _session(model)
    x = _random.standard_normal((3, 16, 7, 7)).astype(np.float32)
    (clean,) = session.run(None, {"x": x})
    x[1] = np.nan
    (found,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(found[[0, 2]], clean[[0, 2]])
    assert np.isnan(found[1]).all()


def test_refused():
    channels, filters, groups, pads, image, images, _ = CASES["tiles over the edge"]
    model, weights = _model(channels, filters, groups, pads, image)
    session = _session(model, disable_winograd="1")
    assert "winograd" not in session.explain()
    x = _random.standard_normal((1, channels, *images[0])).astype(np.float32)
    (found,) = session.run(None, {"x": x})
    wanted = _wanted(x, weights, groups, pads)
    assert_near(found, wanted, "float: direct sums")


def test_switch_of_another_value():
    model, _ = _model(16, 16, 1, (1, 1, 1, 1), "8, 8")
    with pytest.raises(InvalidArgument, match="disable_winograd.*0 or 1.*true"):
        _session(model, disable_winograd="true")


def test_explained():
    model, _ = _model(16, 16, 1, (1, 1, 1, 1), "32, 32")
    assert "1 convolution with Winograd's filters" in _session(model).explain()


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ((3, 3), "strides = [2, 2]"),
        ((3, 3), "strides = [2, 2], dilations = [3, 3]"),
        ((3, 1), ""),
        ((5, 5), ""),
    ],
)
def test_other_convolutions_are_direct(kernel, attributes):
    weights = {
        "e": np.eye(32, dtype=np.float32)[:, :, None, None],
        "w": _random.standard_normal((32, 32, *kernel)).astype(np.float32),
    }
    text = (
        "g (float[1, 32, 20, 20] x) => (float[1, 32, h, w] y) { t = Conv(x, e) y = Conv%s(t, w) }"
    )
    model = model_of(text % (f"<{attributes}>" if attributes else ""), weights)
    assert "winograd" not in _session(model.SerializeToString()).explain()
