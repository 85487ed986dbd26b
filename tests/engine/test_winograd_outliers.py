"""What lies beside a pixel does not change an output that does not read it: Winograd's tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_RANDOM = np.random.default_rng(32)
#: Of the root of an output's own sums of x^2 and w^2: see `kernel.matmul.winograd.MOST_UNEVEN`.
BOUND = 1e-5

#: Channels, filters, groups, pads, taps apart, image, outputs of a tile.
FORMS: dict[str, Any] = {
    "F(4, 3)": (32, 40, 1, (1, 1, 1, 1), (1, 1), (14, 19), 4),
    "F(2, 3)": (256, 256, 1, (1, 1, 1, 1), (1, 1), (9, 10), 2),
    "groups": (64, 96, 2, (1, 0, 1, 2), (1, 1), (15, 17), 4),
    "taps apart": (32, 32, 1, (2, 3, 2, 3), (2, 3), (18, 23), 4),
    "no padding": (16, 16, 1, (0, 0, 0, 0), (1, 1), (17, 18), 4),
    "wide padding": (16, 24, 1, (2, 3, 2, 2), (1, 1), (12, 13), 4),
}
VALUES = [1e3, 1e4, -1e6, 1e12, 1e19, -1e30, np.inf, -np.inf, np.nan]


def _filters(form: Any) -> Any:
    channels, filters, groups, *_ = form
    return _RANDOM.standard_normal((filters, channels // groups, 3, 3)).astype(np.float32)


def _session(form: Any, *, direct: bool = False, tail: str = "", w: Any = None) -> tuple[Any, Any]:
    channels, filters, groups, pads, apart, _, outputs = form
    weights = {"w": _filters(form) if w is None else w}
    text = f"""
    g (float[n, {channels}, {form[5][0]}, {form[5][1]}] x) => (float[n, {filters}, p, q] y) {{
        c = Conv<pads = {list(pads)}, dilations = {list(apart)}, group = {groups}>(x, w)
        {tail or "y = Identity(c)"}
    }}"""
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.disable_winograd", str(int(direct)))
    session = sardonyx.InferenceSession(model_of(text, weights).SerializeToString(), options)
    assert (f"winograd{outputs}" in session.explain()) != direct
    return session, weights["w"]


def _sums(x: Any, w: Any, form: Any) -> Any:
    """Direct sums in float64."""
    _, _, groups, pads, apart, *_ = form
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    h, v = x.shape[2] - 2 * apart[0], x.shape[3] - 2 * apart[1]
    parts = []
    for data, filters in zip(np.split(x, groups, 1), np.split(w, groups), strict=True):
        parts.append(0.0)
        for i in range(3):
            for j in range(3):
                low, left = i * apart[0], j * apart[1]
                window = data[:, :, low : low + h, left : left + v]
                columns = window.reshape(*window.shape[:2], -1)
                sums = filters[:, :, i, j].astype(np.float64) @ columns
                parts[-1] = parts[-1] + sums.reshape(len(x), len(filters), h, v)
    return np.concatenate(parts, 1)


def _norms(x: Any, w: Any, form: Any) -> Any:
    """For each output the root of its sums of squares: of what it reads, and of its filter."""
    squares = np.where(np.isfinite(x), x, 0).astype(np.float64) ** 2
    filters = (w.astype(np.float64) ** 2).sum((1, 2, 3))[:, None, None]
    each = len(w) // form[2]
    return (_sums(squares, np.ones_like(w[::each]), form).repeat(each, 1) * filters) ** 0.5


def _check(session: Any, w: Any, form: Any, x: Any) -> None:
    (got,) = session.run(None, {"x": x})
    with np.errstate(invalid="ignore"):
        wanted = _sums(x.astype(np.float64), w.astype(np.float64), form)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(got[~finite], wanted[~finite])
    of = _norms(x, w, form)
    error = np.abs(got[finite] - wanted[finite])
    assert (error <= BOUND * of[finite]).all()


def _image(form: Any, count: int = 2) -> Any:
    return _RANDOM.standard_normal((count, form[0], *form[5])).astype(np.float32)


@pytest.fixture(scope="module", params=FORMS)
def made(request: pytest.FixtureRequest) -> Any:
    form = FORMS[request.param]
    return form, *_session(form)


#: How a value is found does not depend on the form: all of them in one, a few in each.
_PIXELS = [
    (name, value)
    for name in FORMS
    for value in (VALUES if name == "F(4, 3)" else (1e4, 1e19, -np.inf, np.nan))
]


@pytest.mark.parametrize(("made", "value"), _PIXELS, indirect=["made"], scope="module")
def test_one_pixel(made: Any, value: float) -> None:
    """In the middle, at each border, in other channels and images."""
    form, session, w = made
    channels, (height, width) = form[0], form[5]
    for image, channel, y, x in (
        (0, 0, height // 2, width // 2),
        (1, channels - 1, 0, 0),
        (0, channels // 2, height - 1, width - 1),
        (1, 3, 0, width - 1),
        (0, 5, 4, 5),
    ):
        fed = _image(form)
        fed[image, channel, y, x] = value
        _check(session, w, form, fed)


def test_several_pixels_and_all_channels(made: Any) -> None:
    form, session, w = made
    height, width = form[5]
    fed = _image(form)
    fed[0, 1, 1, 1], fed[0, 2, 1, 2], fed[0, 3, 5, 5] = np.inf, -np.inf, 1e20
    fed[1, :, 3, 4] = 1e6
    fed[1, 0, height - 1, 0], fed[1, 7, 0, width - 1] = np.nan, -np.inf
    _check(session, w, form, fed)
    # Large and small everywhere; a large half; nothing but one pixel; nothing at all.
    fed = _image(form) * 10 ** _RANDOM.uniform(-6, 6, (2, 1, *form[5])).astype(np.float32)
    _check(session, w, form, fed)
    fed = _image(form)
    fed[..., : width // 2] *= 1e5
    _check(session, w, form, fed)
    fed = np.zeros_like(fed)
    _check(session, w, form, fed)
    fed[0, 0, 4, 4] = 1e6
    _check(session, w, form, fed)
    _check(session, w, form, np.full_like(fed, np.inf))


@pytest.mark.parametrize("name", ["F(4, 3)", "F(2, 3)"])
def test_not_finite_as_in_direct_sums(name: str) -> None:
    form = FORMS[name]
    state = _RANDOM.bit_generator.state
    session, _ = _session(form)
    _RANDOM.bit_generator.state = state
    direct, _ = _session(form, direct=True)
    for value in (np.inf, -np.inf, np.nan):
        fed = _image(form)
        fed[0, 1, 4, 4] = value
        (got,), (wanted,) = session.run(None, {"x": fed}), direct.run(None, {"x": fed})
        for is_so in (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(is_so(got), is_so(wanted))


def test_an_epilogue_and_a_residual() -> None:
    form = (32, 32, 1, (1, 1, 1, 1), (1, 1), (14, 19), 4)
    session, w = _session(form, tail="r = Relu(c) y = Add(r, x)")
    fed = _image(form)
    fed[0, 3, 5, 5], fed[1, 0, 0, 0] = 1e6, -np.inf
    (got,) = session.run(None, {"x": fed})
    with np.errstate(invalid="ignore"):
        wanted = np.maximum(_sums(fed.astype(np.float64), w.astype(np.float64), form), 0) + fed
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(got[~finite], wanted[~finite])
    of = _norms(fed, w, form) + np.abs(fed)
    assert (np.abs(got[finite] - wanted[finite]) <= BOUND * of[finite]).all()


def test_the_same_bits_on_any_number_of_threads() -> None:
    form, results = FORMS["F(4, 3)"], []
    fed = _image(form, 5)
    fed[:, 3, 5, 5] = [1, 1e6, np.inf, 1e4, 1e30]
    state = _RANDOM.bit_generator.state
    for threads in (1, 2):
        _RANDOM.bit_generator.state = state
        w = _RANDOM.standard_normal((form[1], form[0], 3, 3)).astype(np.float32)
        text = f"""g (float[n, {form[0]}, h, v] x) => (float[n, {form[1]}, h, v] y) {{
            y = Conv<pads = [1, 1, 1, 1]>(x, w) }}"""
        options = sardonyx.SessionOptions()
        options.intra_op_num_threads = threads
        session = sardonyx.InferenceSession(model_of(text, {"w": w}).SerializeToString(), options)
        results += [session.run(None, {"x": fed})[0] for _ in range(3)]
        results.append(
            np.concatenate([session.run(None, {"x": fed[k : k + 1]})[0] for k in range(5)])
        )
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


# -- channels and taps that count as much as their weights ----------------------------------------


def _large_where_unused(x: Any, w: Any, weight: float) -> None:
    """A few channels have one outlier; the others are as large, and have hardly any weight."""
    x[:, 4:] = 1e6
    x[:, 0, 5, 6] = 1e6
    w[:, 4:] *= weight


def _unused_taps(x: Any, w: Any, weight: float) -> None:
    """Every even pixel is an outlier; what outputs read there has hardly any weight."""
    x[..., ::2, ::2] = 1e6
    w[..., ::2, ::2] *= weight
    w[..., 1, 1] *= weight


def _unused_taps_of_a_channel(x: Any, w: Any, weight: float) -> None:
    x[:, 0, ::2, ::2] = 1e6
    w[:, 0, ::2, ::2] *= weight
    w[:, 0, 1, 1] *= weight


def _one_unused_tap(x: Any, w: Any, weight: float) -> None:
    """Each fourth pixel is an outlier, which the first tap meets."""
    x[..., ::2, ::2] = 1e6
    w[..., 0, 0] *= weight


CHANGES = {
    "large where unused": _large_where_unused,
    "unused taps": _unused_taps,
    "unused taps of a channel": _unused_taps_of_a_channel,
    "one unused tap": _one_unused_tap,
}
#: Of each output's own sum of |w| |x|: what it reads counts as much as its weight.
OWN_BOUND = 1e-5
GROUPED = (64, 64, 2, (1, 1, 1, 1), (1, 1), (12, 12), 4)
ODD = (37, 29, 1, (1, 1, 1, 1), (1, 1), (14, 19), 4)
ONE_GROUP = (32, 32, 1, (1, 1, 1, 1), (1, 1), (14, 19), 4)


@pytest.mark.parametrize("size", [1.0, 1e-25, 1e12])
@pytest.mark.parametrize("weight", [0.0, 1e-9])
@pytest.mark.parametrize("change", CHANGES)
def test_inputs_count_as_much_as_their_weights(change: str, weight: float, size: float) -> None:
    w, x = _filters(ONE_GROUP), _image(ONE_GROUP, 1)
    CHANGES[change](x, w, weight)
    _check_own(ONE_GROUP, w * np.float32(size), x)


@pytest.mark.parametrize("value", [1.0, 1e4, -1e6, 1e9])
def test_channels_of_any_sizes_with_weights_to_match(value: float) -> None:
    """The bound is that of channels and weights of one size."""
    w, x = _filters(ONE_GROUP), _image(ONE_GROUP, 1)
    x[0, 3, 5, 6] = value
    size = np.exp2(np.round(_RANDOM.uniform(-20, 20, (1, 32, 1, 1)))).astype(np.float32)
    session, _ = _session(ONE_GROUP, w=w / size)
    (got,) = session.run(None, {"x": x * size})
    wanted = _sums(x.astype(np.float64), w.astype(np.float64), ONE_GROUP)
    assert (np.abs(got - wanted) <= BOUND * _norms(x, w, ONE_GROUP)).all()


@pytest.mark.parametrize("form", [GROUPED, ODD, FORMS["F(2, 3)"], FORMS["taps apart"]])
def test_inputs_count_as_much_as_their_weights_in_each_form(form: Any) -> None:
    w, x = _filters(form), _image(form, 1)
    _large_where_unused(x, w, 0.0)
    _check_own(form, w, x)


def test_each_group_has_weights_of_its_own() -> None:
    """The channels that one group does not use are those that the other one does."""
    w, x = _filters(GROUPED), _image(GROUPED, 1)
    w[:32, 4:], w[32:, :28] = 0, 0
    x[:, 4:32] = x[:, 32:60] = 1e6
    x[:, 0, 5, 6] = x[:, 63, 5, 6] = 1e6
    _check_own(GROUPED, w, x)


def _check_own(form: Any, w: Any, x: Any) -> None:
    session, _ = _session(form, w=w)
    (got,) = session.run(None, {"x": x})
    wanted, own = (
        _sums(a.astype(np.float64), b.astype(np.float64), form)
        for a, b in ((x, w), (np.abs(x), np.abs(w)))
    )
    assert (np.abs(got - wanted) / own).max() <= OWN_BOUND


def _codes_of(w: Any) -> dict[str, Any]:
    scales = _RANDOM.uniform(0.01, 0.03, len(w)).astype(np.float32)
    codes = np.clip(w / scales[:, None, None, None], -127, 127).astype(np.int8)
    return {"w": codes, "s": scales, "z": np.zeros(len(w), np.int8)}


#: How filters are computed of constants, and these.
MADE: dict[str, Any] = {
    "of codes": ("DequantizeLinear<axis = 0>(w, s, z)", _codes_of),
    "of halves": ("Cast<to = 1>(w)", lambda w: {"w": w.astype(np.float16)}),
    "of products": ("Mul(w, w)", lambda w: {"w": w}),
}


@pytest.mark.parametrize("name", MADE)
def test_weights_that_are_computed_once(name: str) -> None:
    w, x = _filters(ONE_GROUP), _image(ONE_GROUP, 1)
    _large_where_unused(x, w, 0.0)
    made, held = MADE[name]
    text = f"""g (float[n, 32, 14, 19] x) => (float[n, 32, 14, 19] y) {{
        f = {made}
        y = Conv<pads = [1, 1, 1, 1]>(x, f) }}"""
    model, results = model_of(text, held(w)).SerializeToString(), []
    for direct in (False, True):
        options = sardonyx.SessionOptions()
        options.add_session_config_entry("session.disable_winograd", str(int(direct)))
        session = sardonyx.InferenceSession(model, options)
        assert ("winograd4" in session.explain()) != direct
        results.append(session.run(None, {"x": x})[0])
    got, wanted = results
    small = np.abs(wanted) < 1e3  # what does not read the outlier
    assert small.mean() > 0.9
    assert_near(got[small], wanted[small], "float: Winograd's sums")


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e30])
@pytest.mark.parametrize("weights", ["some are 0", "all are 0"])
def test_not_finite_where_weights_are_zero(weights: str, value: float) -> None:
    """0 times infinity is NaN, also where nothing else would look at the channel."""
    w, fed = _filters(ONE_GROUP), _image(ONE_GROUP, 1)
    w[:, 8 * (weights == "some are 0") :] = 0
    fed[0, 20, 5, 6] = value
    got, direct = _both(w, fed)
    np.testing.assert_array_equal(*map(np.isnan, (got, direct)))
    assert_near(*map(np.nan_to_num, (got, direct)), "float: Winograd's sums")


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, -1e30])
@pytest.mark.parametrize("tap", [(0, 0), (1, 1), (2, 1)])
def test_weights_that_are_not_finite_or_too_large(tap: tuple[int, int], value: float) -> None:
    """One of a filter's; other filters, and what does not read it, are not changed by it."""
    w, fed = _filters(ONE_GROUP), _image(ONE_GROUP, 1)
    w[3, 20, *tap] = value
    fed[0, 20, 5, 6] = 0
    results = _both(w, fed)
    np.testing.assert_array_equal(*map(np.isnan, results))
    own, others = np.arange(32) == 3, np.arange(32) != 3
    for filters in (own, others):
        got, direct = (np.nan_to_num(r[:, filters], nan=0.0) for r in results)
        assert_near(got, direct, "float: direct sums")


def _both(w: Any, fed: Any) -> list[Any]:
    """What a session gives, and what it gives by direct sums."""
    return [
        _session(ONE_GROUP, w=w, direct=direct)[0].run(None, {"x": fed})[0]
        for direct in (False, True)
    ]
