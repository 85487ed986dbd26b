"""Operators of the program's own: in the tensor language, and as functions of Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, parser

import sardonyx
from sardonyx import operators
from sardonyx.base import errors
from sardonyx.host.user_defined import is_function
from sardonyx.operators import Output, Tensor
from sardonyx.operators import language as t
from tests.support.tolerances import assert_near

DOMAIN = "com.example"
_RANDOM = np.random.default_rng(8)
X = _RANDOM.standard_normal((3, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    for name in ("Swish", "Own", "Two"):
        try:
            operators.remove(DOMAIN, name)
        except errors.InvalidArgument:
            continue


def _model(body: str, inputs: str = "float[N,M] x", outputs: str = "float[A,B] y") -> ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : 17, "{DOMAIN}" : 3]> g ({inputs}) => ({outputs})'
    return parser.parse_model(text + " {" + body + "}")


def _run(model: ModelProto, **feeds: Any) -> list[Any]:
    return sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)


# -- lowerings ----------------------------------------------------------------------------------


def _swish(scale: float = 1.0) -> None:
    @operators.lowering(DOMAIN, "Swish")
    def swish(x: Tensor, gain: Tensor | None = None, *, beta: float = 1.0) -> Tensor:
        found = x * t.sigmoid(x * beta) * scale
        return found if gain is None else found * gain


def test_a_lowering_is_fused_with_what_is_around_it() -> None:
    _swish()
    model = _model("a = Neg(x) b = com.example.Swish<beta = 2.0>(a) y = Add(b, x)")
    session = sardonyx.InferenceSession(model.SerializeToString())
    for shape in ((3, 4), (1, 7), (0, 2)):
        x = _RANDOM.standard_normal(shape).astype(np.float32)
        wide = -x.astype(np.float64)
        expected = wide / (1 + np.exp(-2 * wide)) + x
        assert_near(session.run(None, {"x": x})[0], expected, "float: functions near zero")
    assert "1 kernel" in str(session.explain())


def test_inputs_may_be_omitted_and_attributes_have_defaults() -> None:
    _swish()
    plain = X / (1 + np.exp(-X))
    assert_near(_run(_model("y = com.example.Swish(x)"), x=X)[0], plain, "float: functions")
    model = _model("y = com.example.Swish(x, w)", "float[N,M] x, float[M] w")
    gain = np.arange(4, dtype=np.float32)
    assert_near(_run(model, x=X, w=gain)[0], plain * gain, "float: functions")


def test_a_lowering_that_changed_is_not_taken_from_the_cache() -> None:
    model = _model("y = com.example.Swish(x)")
    _swish()
    first = _run(model, x=X)[0]
    _swish(scale=3.0)
    assert_near(_run(model, x=X)[0], 3 * first, "float: one operation")


def test_a_lowering_in_place_of_a_function() -> None:
    operators.function(DOMAIN, "Swish", [Output(like=0)])(lambda x: x)
    model = _model("y = com.example.Swish(x)")
    np.testing.assert_array_equal(_run(model, x=X)[0], X)
    _swish()
    assert_near(_run(model, x=X)[0], X / (1 + np.exp(-X)), "float: functions")
    assert not is_function(DOMAIN, "Swish")


def test_versions_and_several_results() -> None:
    @operators.lowering(DOMAIN, "Two", since=1)
    def old(x: Tensor) -> Any:
        return x, x

    @operators.lowering(DOMAIN, "Two", since=3)
    def new(*xs: Tensor, axes: list[int]) -> Any:
        return xs[0] + xs[1], t.transpose(xs[1], axes)

    found = _run(
        _model("y, z = com.example.Two<axes = [1, 0]>(x, x)", outputs="float[A,B] y, float[B,A] z"),
        x=X,
    )
    np.testing.assert_array_equal(found[0], 2 * X)
    np.testing.assert_array_equal(found[1], X.T)


def test_a_gradient_and_loops_go_through_a_lowering() -> None:
    _swish()
    text = f"""<ir_version: 8, opset_import: ["" : 17, "{DOMAIN}" : 1]>
        g (float[N] x, int64 n) => (float[N] y) {{ y = Loop(n, , x) <body = b
        (int64 i, bool c, float[N] s) => (bool d, float[N] r)
        {{ d = Identity(c) r = com.example.Swish(s) }}> }}"""
    expected = X[0].astype(np.float64)
    for _ in range(3):
        expected = expected / (1 + np.exp(-expected))
    found = _run(parser.parse_model(text), x=X[0], n=np.array(3))[0]
    assert_near(found, expected, "float: functions")


@pytest.mark.parametrize(
    ("lowering", "text"),
    [
        (lambda x: X, "gives no tensor"),
        (lambda x: x.nothing, "AttributeError"),
        (lambda x: t.reshape(x, (7, 9)), "reshape"),
        (lambda x, y: x, "missing"),
    ],
)
def test_lowerings_that_fail_name_the_node(lowering: Any, text: str) -> None:
    operators.lowering(DOMAIN, "Own")(lowering)
    model = _model("y = com.example.Own(x)", inputs="float[3,4] x")
    with pytest.raises(errors.InvalidGraph, match=rf"(?s)Own_0 \(Own\).*{text}"):
        _run(model, x=X)


# -- functions ----------------------------------------------------------------------------------


def test_a_function_gets_arrays_and_attributes() -> None:
    seen: list[Any] = []

    @operators.function(DOMAIN, "Own", [Output(like=0)])
    def own(x: Any, more: Any = None, *, scale: float = 1.0, names: list[str] = ()) -> Any:  # type: ignore[assignment]  # a default
        seen.append((x.shape, x.flags.writeable, None if more is None else more.dtype, names))
        return x * np.float32(scale)

    model = _model(
        'a = Add(x, x) b = com.example.Own<scale = 0.5, names = ["p", "q"]>(a, k) y = Neg(b)',
        "float[N,M] x, int64[K] k",
    )
    session = sardonyx.InferenceSession(model.SerializeToString())
    for shape in ((3, 4), (2, 0), (1, 1)):
        x = _RANDOM.standard_normal(shape).astype(np.float32)
        found = session.run(None, {"x": x, "k": np.arange(3)})[0]
        np.testing.assert_array_equal(found, -x)
    assert seen[0] == ((3, 4), False, np.dtype(np.int64), ("p", "q"))


def test_sizes_and_types_that_only_a_call_knows() -> None:
    @operators.function(DOMAIN, "Two", [Output("int64", (None,)), Output("string", (None, 2))])
    def two(x: Any) -> Any:
        found = np.flatnonzero(x.reshape(-1) > 0)
        return found, np.array([[str(k), "é"] for k in found], object).reshape(-1, 2)

    model = _model("y, z = com.example.Two(x) w = Add(y, y)", outputs="int64[A] w, string[B,C] z")
    session = sardonyx.InferenceSession(model.SerializeToString())
    for x in (X, -np.abs(X), X[:1]):
        positive = np.flatnonzero(x > 0)
        doubled, texts = session.run(None, {"x": x})
        np.testing.assert_array_equal(doubled, 2 * positive)
        assert texts.tolist() == [[str(k), "é"] for k in positive]


def test_text_goes_in() -> None:
    @operators.function(DOMAIN, "Own", [Output("int64", like=0)])
    def own(words: Any) -> Any:
        return np.array([len(w) for w in words.reshape(-1)], np.int64).reshape(words.shape)

    model = _model("y = com.example.Own(s)", "string[N,M] s", "int64[A,B] y")
    words = np.array([["a", "déjà"], ["", "vu!"]], object)
    assert _run(model, s=words)[0].tolist() == [[1, 4], [0, 3]]


def test_what_a_function_gives_back_of_its_inputs_is_copied() -> None:
    @operators.function(DOMAIN, "Own", [Output(like=0)])
    def own(x: Any) -> Any:
        return x

    session = sardonyx.InferenceSession(_model("y = com.example.Own(x)").SerializeToString())
    first = session.run(None, {"x": X})[0]
    session.run(None, {"x": X + 1})
    np.testing.assert_array_equal(first, X)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda x: x[0], r"Expected \(3, 4\), got \(4,\)"),
        (lambda x: x.astype(np.float64), "Expected float32, got float64"),
        (lambda x: (x, x), "Expected 1, got 2"),
        (lambda x: None, "no array"),
        (lambda x: x.nothing, "AttributeError"),
        (lambda x: x.__setitem__(0, 0), "read-only"),
        (lambda x: [[1], [2, 3]], "no array"),
    ],
)
def test_functions_that_fail_name_the_operator_and_the_session_goes_on(
    given: Any, text: str
) -> None:
    broken = [True]

    @operators.function(DOMAIN, "Own", [Output(like=0)])
    def own(x: Any) -> Any:
        return given(x) if broken[0] else x + 1

    session = sardonyx.InferenceSession(_model("y = com.example.Own(x)").SerializeToString())
    with pytest.raises(errors.RuntimeException, match=rf"(?s)com\.example\.Own-1.*{text}"):
        session.run(None, {"x": X})
    broken[0] = False
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 1)


def test_threads() -> None:
    @operators.function(DOMAIN, "Own", [Output(like=0)])
    def own(x: Any) -> Any:
        return np.sort(x, axis=-1)

    session = sardonyx.InferenceSession(_model("y = com.example.Own(x)").SerializeToString())
    wrong: list[Any] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(50):
            x = random.standard_normal((random.integers(1, 9), 5)).astype(np.float32)
            if not np.array_equal(session.run(None, {"x": x})[0], np.sort(x, axis=-1)):
                wrong.append(x)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- what is refused ----------------------------------------------------------------------------


def _plain(x: Any) -> Any:
    return x


def _strange(x: Any, *, way: complex = 1j) -> Any:
    return x


def _open(x: Any, **more: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: operators.lowering("", "Own")(_plain), "ONNX's own domain"),
        (lambda: operators.lowering("ai.onnx", "Own")(_plain), "ONNX's own domain"),
        (lambda: operators.lowering("com.microsoft", "Gelu")(_plain), "has an operator"),
        (lambda: operators.lowering(DOMAIN, "Own", since=0)(_plain), "no version"),
        (lambda: operators.lowering(DOMAIN, "")(_plain), "text"),
        (lambda: operators.lowering(DOMAIN, "Own")(len), "plain function"),
        (lambda: operators.lowering(DOMAIN, "Own")(_strange), "annotation 'complex'"),
        (lambda: operators.lowering(DOMAIN, "Own")(_open), "names of their own"),
        (lambda: operators.function(DOMAIN, "Own", [])(_plain), "an Output for each"),
        (lambda: operators.function(DOMAIN, "Own", ["float"])(_plain), "an Output for each"),
        (lambda: Output("float33", (1,)), "no such type"),
        (lambda: Output("float"), "a type and a shape"),
        (lambda: Output(like=-1), "no input"),
        (lambda: Output("float", (-1,)), "no shape"),
        (lambda: Output("float", [1]), "no shape"),
        (lambda: operators.remove(DOMAIN, "Nothing"), "no own"),
        (lambda: operators.remove("com.microsoft", "Gelu"), "no own"),
    ],
)
def test_what_is_refused(make: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        make()


def test_unknown_attributes_and_like_what_is_not_there() -> None:
    operators.function(DOMAIN, "Own", [Output(like=1)])(lambda x, y=None: x)
    with pytest.raises(errors.InvalidGraph, match="input 1"):
        _run(_model("y = com.example.Own(x)"), x=X)
    _swish()
    with pytest.raises(errors.InvalidGraph, match="no attribute 'alpha'"):
        _run(_model("y = com.example.Swish<alpha = 1.0>(x)"), x=X)


def test_after_removal_sessions_go_on_and_new_ones_are_refused() -> None:
    _swish()
    model = _model("y = com.example.Swish(x)")
    session = sardonyx.InferenceSession(model.SerializeToString())
    operators.remove(DOMAIN, "Swish")
    assert_near(session.run(None, {"x": X})[0], X / (1 + np.exp(-X)), "float: functions")
    with pytest.raises(errors.Fail, match="Swish of com.example"):
        _run(model, x=X)


def test_the_packages_own_list_has_them_not() -> None:
    from sardonyx.ops.core.registry import records

    _swish()
    assert not [r for r in records() if r.domain == DOMAIN]


def test_models_functions_come_first() -> None:
    _swish(scale=100.0)
    body = helper.make_node("Neg", ["a"], ["b"])
    opset = [helper.make_opsetid("", 17)]
    model = _model("y = com.example.Swish(x)")
    model.functions.append(helper.make_function(DOMAIN, "Swish", ["a"], ["b"], [body], opset))
    np.testing.assert_array_equal(_run(model, x=X)[0], -X)
