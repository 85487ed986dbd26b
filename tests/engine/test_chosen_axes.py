"""Axes, steps and scales that only a run knows: one session, many choices, against references."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base.errors import InvalidArgument, SardonyxError
from tests.support.session import check, model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(11)
_X = (_random.standard_normal((2, 3, 4)) + 3).astype(np.float32)
_REDUCTIONS = "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split()


def _list(*values: int) -> Any:
    return np.array(values, np.int64)


def _model(text: str, weights: Any = None, opset: int = 17) -> Any:
    return model_of(f"graph {text}", weights, opset)


def _session(text: str, opset: int = 18) -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(_model(text, opset=opset).SerializeToString())


@pytest.mark.parametrize("name", _REDUCTIONS)
def test_reductions_over_any_axes(name: str) -> None:
    for count in (1, 2, 3):
        text = f"(float[A,B,C] x, int64[{count}] a) => (float[P,Q,R] y, float[...] z) {{"
        text += f" y = Reduce{name}(x, a) z = Reduce{name}<keepdims=0>(x, a) }}"
        text = text.replace("float[...] z", f"float[{','.join('DEF'[: 3 - count])}] z")
        choices = list(itertools.permutations((0, 1, -1), count)) + [(-3, 1, 2)[:count]]
        check(_model(text, opset=18), [{"x": _X, "a": _list(*c)} for c in choices])


@pytest.mark.parametrize("noop", [0, 1])
def test_reductions_over_as_many_axes_as_are_given(noop: int) -> None:
    text = "(float[A,B,C] x, int64[N] a) => (float[P,Q,R] y) {"
    text += f" y = ReduceSum<noop_with_empty_axes={noop}>(x, a) }}"
    given = [_list(), _list(1), _list(-1, 0), _list(0, 1, 2), _list()]
    check(_model(text, opset=18), [{"x": _X, "a": a} for a in given])


def test_reductions_of_integers_and_empty_axes() -> None:
    text = "(int32[A,B] x, int64[1] a) => (int32[P,Q] y) { y = ReduceMax(x, a) }"
    x = _random.integers(-9, 9, (4, 5)).astype(np.int32)
    check(_model(text, opset=18), [{"x": x, "a": _list(k)} for k in (0, 1, -1)])
    text = "(float[A,B] x, int64[1] a) => (float[P,Q] y) { y = ReduceSum(x, a) }"
    empty = np.zeros((0, 3), np.float32)
    check(_model(text, opset=18), [{"x": empty, "a": _list(k)} for k in (0, 1)])


def test_what_follows_a_reduction_over_any_axes() -> None:
    text = (
        "(float[A,B] x, int64[1] a) => (float[A,B] y) { m = ReduceMax(x, a) d = Sub(x, m)"
        " e = Exp(d) s = ReduceSum(e, a) y = Div(e, s) }"
    )
    x = _random.standard_normal((3, 5)).astype(np.float32)
    session = check(_model(text, opset=18), [{"x": x, "a": _list(k)} for k in (0, 1, -2)])
    assert not inspect(session).variants


@pytest.mark.parametrize(
    ("given", "expected"),
    [(_list(0, 0), "An axis comes twice"), (_list(1, -2), "twice"), (_list(0, 3), "3")],
)
def test_axes_that_are_refused(given: Any, expected: str) -> None:
    session = _session("(float[A,B,C] x, int64[2] a) => (float[P,Q,R] y) { y = ReduceSum(x, a) }")
    with pytest.raises(SardonyxError, match=expected):
        session.run(None, {"x": _X, "a": given})
    (right,) = session.run(None, {"x": _X, "a": _list(0, 2)})
    assert_near(right, _X.sum((0, 2), keepdims=True), "float: one operation")


def test_a_result_has_the_rank_that_a_fed_list_leaves() -> None:
    text = "(float[A,B] x, int64[N] a) => (float[P] y) { y = ReduceSum<keepdims=0>(x, a) }"
    given = [_list(0), _list(-1), _list(1, 0), _list(), _list(1)]
    check(_model(text, opset=18), [{"x": _X[0], "a": a} for a in given])


def test_a_result_whose_rank_a_run_computes() -> None:
    text = """(float[A,B] x, float[K] k) => (float[P] y) {
      i = NonZero(k) z = Constant<value_ints=[0]>() a = Squeeze(i, z)
      y = ReduceSum<keepdims=0>(x, a)
    }"""
    session, x = _session(text), np.arange(6, dtype=np.float32).reshape(2, 3)
    for axes in ((1,), (0,), (0, 1)):
        k = np.isin(np.arange(3), axes).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x, "k": k})[0], x.sum(axis=axes))


def test_squeeze_and_unsqueeze() -> None:
    text = "(float[A,B,C,D] x, int64[2] a) => (float[P,Q] y) { z = Squeeze(x, a) y = Neg(z) }"
    shapes = {
        (0, 1): (1, 1, 3, 4),
        (-1, 1): (3, 1, 4, 1),
        (3, 0): (1, 3, 4, 1),
        (2, 1): (3, 1, 1, 4),
    }
    feeds = [{"x": _X[0].reshape(s), "a": _list(*a)} for a, s in shapes.items()]
    session = check(_model(text, opset=13), feeds)
    with pytest.raises(InvalidArgument, match="Axis 2 of .* is not 1"):
        session.run(None, {"x": _X[0].reshape(1, 1, 3, 4), "a": _list(0, 2)})
    text = "(float[A,B] x, int64[2] a) => (float[P,Q,R,S] y) { z = Unsqueeze(x, a) y = Neg(z) }"
    choices = [(0, 1), (3, 0), (-1, -3), (1, 2), (2, 3)]
    session = check(_model(text, opset=13), [{"x": _X[0], "a": _list(*a)} for a in choices])
    with pytest.raises(InvalidArgument, match="twice"):
        session.run(None, {"x": _X[0], "a": _list(1, -3)})


def test_slice() -> None:
    text = "(float[A,B] x, int64[N] s, int64[N] e, int64[N] a, int64[N] t) => (float[P,Q] y)"
    model = _model(text + " { z = Slice(x, s, e, a, t) y = Neg(z) }", opset=13)
    x = _random.standard_normal((5, 7)).astype(np.float32)
    big = np.iinfo(np.int64).max
    bounds = [(0, 3), (-3, big), (big, -big), (4, 1), (2, 2), (-100, -1), (1, -2)]
    cases: list[tuple[Any, ...]] = [(_list(), _list(), _list(), _list())]
    for (s, e), axis, step in itertools.product(bounds, (0, -1), (1, 2, -1, -3)):
        cases.append((_list(s), _list(e), _list(axis), _list(step)))
    cases.append((_list(3, 1), _list(-9, 6), _list(1, 0), _list(-1, 2)))
    session = check(model, [dict(zip("xseat", (x, *case), strict=True)) for case in cases])
    with pytest.raises(InvalidArgument, match="A step is 0"):
        session.run(None, {"x": x, "s": _list(0), "e": _list(1), "a": _list(0), "t": _list(0)})


def test_slice_by_steps_of_the_first_axes() -> None:
    text = "(float[A,B] x, int64[1] s, int64[1] e, int64[1] t) => (float[P,B] y)"
    weights = {"a": _list(0)}
    model = _model(text + " { z = Slice(x, s, e, a, t) y = Neg(z) }", weights, opset=13)
    x = _random.standard_normal((9, 3)).astype(np.float32)
    cases = [(0, 9, 2), (8, -10, -4), (7, 2, -2), (3, 3, 1)]
    check(model, [{"x": x, "s": _list(s), "e": _list(e), "t": _list(t)} for s, e, t in cases])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad(mode: str) -> None:
    text = "(float[A,B,C] x, int64[4] p, float v, int64[2] a) => (float[P,Q,R] y)"
    model = _model(f'{text} {{ z = Pad<mode="{mode}">(x, p, v, a) y = Neg(z) }}', opset=18)
    cases = [((1, 2, 0, 1), (1, 2)), ((0, 1, 1, 0), (-1, 0)), ((1, 0, 0, 0), (2, -2))]
    value = np.float32(7)
    check(model, [{"x": _X, "p": _list(*p), "a": _list(*a), "v": value} for p, a in cases])


@pytest.mark.parametrize("onesided", [0, 1])
def test_fourier_transform(onesided: int) -> None:
    text = "(float[A,B,C,1] x, int64 a) => (float[P,Q,R,2] y)"
    model = _model(f"{text} {{ y = DFT<onesided={onesided}>(x, , a) }}", opset=20)
    x = _random.standard_normal((3, 4, 5, 1)).astype(np.float32)
    check(
        model,
        [{"x": x, "a": np.int64(a)} for a in (0, 1, 2, -2, -4)],
        tolerance="float: sums that cancel",
    )


_MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", _MODES)
def test_resize_by_scales(mode: str, coordinates: str) -> None:
    node = f'Resize<mode="{mode}", coordinate_transformation_mode="{coordinates}">(x, , s)'
    model = _model(f"(float[1,1,H,W] x, float[4] s) => (float[P,Q,R,S] y) {{ y = {node} }}")
    x = _random.standard_normal((1, 1, 5, 6)).astype(np.float32)
    scales = ((2, 3), (1, 1), (0.5, 1.7), (0.6, 0.8), (3.3, 0.3))
    feeds = [{"x": x, "s": np.array([1, 1, *pair], np.float32)} for pair in scales]
    if coordinates == "align_corners":  # onnxruntime rounds the length that the scale asks for
        check(model, feeds, tolerance="float: sums that cancel")
        return
    onnxruntime = pytest.importorskip("onnxruntime")
    reference = onnxruntime.InferenceSession(model.SerializeToString())
    session = sardonyx.InferenceSession(model.SerializeToString())
    for feed in feeds:
        (got,), (want,) = session.run(None, feed), reference.run(None, feed)
        assert_near(got, want, "float: layers near zero")


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize_without_aliases(mode: str) -> None:
    node = f'Resize<mode="{mode}", antialias=1, axes=[2, 3]>(x, , s)'
    model = _model(
        f"(float[1,1,H,W] x, float[2] s) => (float[1,1,R,S] y) {{ y = {node} }}", opset=18
    )
    x = _random.standard_normal((1, 1, 9, 11)).astype(np.float32)
    scales = ((0.5, 0.4), (0.33, 0.71), (1.0, 0.9))
    check(
        model,
        [{"x": x, "s": np.array(s, np.float32)} for s in scales],
        tolerance="float: sums that cancel",
    )


def test_pads_that_are_zero_before_any_axis() -> None:
    text = '(float[N] x, int64[1] a) => (float[M] y) { y = Pad<mode="reflect">(x, p, , a) }'
    session = sardonyx.InferenceSession(_model(text, {"p": _list(0, 1)}, 19).SerializeToString())
    x = np.arange(4, dtype=np.float32)
    for axis in (0, -1):
        (y,) = session.run(None, {"x": x, "a": _list(axis)})
        np.testing.assert_array_equal(y, [0, 1, 2, 3, 2])


def test_five_axes_are_compiled_in_time() -> None:
    text = "(float[A,B,C,D,E] x, int64[3] a) => (float[P,Q,R,S,T] y) { y = ReduceSum(x, a) }"
    x = np.arange(48, dtype=np.float32).reshape(1, 2, 3, 2, 4)
    check(_model(text, opset=18), [{"x": x, "a": _list(*a)} for a in ((0, 2, -1), (3, 1, 4))])


@pytest.mark.parametrize("noop", [0, 1])
def test_a_fed_list_without_axes_is_known(noop: int) -> None:
    text = f"ReduceSum<keepdims=0, noop_with_empty_axes={noop}>(x, a)"
    session = _session(f"(float[A] x, int64[0] a) => (float[...] y) {{ y = {text} }}".replace(
        "float[...]", "float[A]" if noop else "float"))  # fmt: skip
    x = np.arange(3, dtype=np.float32)
    (y,) = session.run(None, {"x": x, "a": _list()})
    np.testing.assert_array_equal(y, x if noop else np.float32(3), strict=True)


_LEAST, _MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("which", ["bounds", "all", "none"])
def test_slices_to_the_ends_of_all_integers(which: str) -> None:
    """Exporters write the ends of int64 for "to the end": fed, or constants."""
    cases = [
        (_MOST, _LEAST, -1),
        (_LEAST, _MOST, 1),
        (_MOST, _LEAST, _LEAST),
        (0, _MOST, _MOST),
        (_MOST, _MOST, 1),
        (2**62, -(2**62), -2),
        (-1, _LEAST + 1, -3),
    ]
    x = np.arange(5, dtype=np.float32)
    for start, end, step in cases:
        bounds = {"s": _list(start), "e": _list(end), "a": _list(0), "t": _list(step)}
        fed = {"bounds": "se", "all": "seat", "none": ""}[which]
        text = f"(float[N] x{''.join(f', int64[1] {name}' for name in fed)}) => (float[M] y)"
        weights = {name: value for name, value in bounds.items() if name not in fed}
        model = _model(text + " { y = Slice(x, s, e, a, t) }", weights, opset=13)
        session = sardonyx.InferenceSession(model.SerializeToString())
        for n in (5, 1, 0):
            feeds = {"x": x[:n], **{name: bounds[name] for name in fed}}
            ends = [None if abs(k) > 2**40 else k for k in (start, end)]
            want = x[:n][ends[0] : ends[1] : max(min(step, 9), -9)]
            if start == end:
                want = x[:0]
            np.testing.assert_array_equal(session.run(None, feeds)[0], want)
