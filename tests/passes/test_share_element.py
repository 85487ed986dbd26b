"""Which constants with nothing but equal elements are read as one, and that results stay."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.loader.load import load
from sardonyx.passes.pipeline import PassLook, optimise
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(4)
_STEP = "read one of equal elements"


def _shapes(model: ModelProto, **options: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of constants that nodes read, after the passes."""
    graph: Graph = load(model.SerializeToString())
    optimise(graph, look=PassLook(verify=True), **options)
    read = [v for n in graph.walk() for v in n.inputs if v is not None and v.constant is not None]
    return {v.name.split("_")[0]: v.constant.shape for v in read if v.constant is not None}


def _one(*shape: int, value: float = 0, kind: Any = np.float32) -> Any:
    return np.full(shape, value, kind)


_LAST = _one(4, 5)
_LAST[-1, -1] = 1
_SIGNS = _one(4, 5)
_SIGNS[2, 3] = -0.0
#: Body of `x: float[N,3,4,5], z: float[N,3,1,5]`, the constant `c`, its shape afterwards.
CASES: dict[str, tuple[str, Any, tuple[int, ...]]] = {
    "a mask of zeros": ("y = Add(x, c)", _one(1, 1, 4, 5), (1, 1, 1, 1)),
    "on the left": ("y = Sub(c, x)", _one(4, 5, value=2), (1, 1)),
    "factors": ("y = Mul(x, c)", _one(3, 4, 5, value=0.5), (1, 1, 1)),
    "divisors": ("y = Div(x, c)", _one(3, 4, 5, value=8), (1, 1, 1)),
    "a choice": ("y = Where(c, x, x)", _one(4, 5, value=1, kind=bool), (1, 1)),
    "a chosen number": ("b = Greater(x, z) y = Where(b, x, c)", _one(4, 5, value=-9), (1, 1)),
    "a bound": ("y = Max(x, z, c)", _one(4, 5, value=0.25), (1, 1)),
    "not a number": ("y = Add(x, c)", _one(4, 5, value=np.nan), (1, 1)),
    "for several nodes": ("a = Add(x, c) y = Mul(a, c)", _one(4, 5, value=3), (1, 1)),
    "in a branch": (
        "l = Less(k, k) y = If(l) <then_branch = t () => (float[A,B,C,D] u) { u = Add(x, c) },"
        " else_branch = e () => (float[A,B,C,D] v) { v = Mul(x, c) }>",
        _one(4, 5, value=3), (1, 1),
    ),
    "the last is another": ("y = Add(x, c)", _LAST, (4, 5)),
    "zeros of both signs": ("y = Div(x, c)", _SIGNS, (4, 5)),
    "weights of a channel": ("y = Add(x, c)", _one(3, 1, 1, value=2), (3, 1, 1)),
    "it makes the result larger": ("y = Add(z, c)", _one(4, 5), (4, 5)),
    "a factor of a product": ("y = MatMul(x, c)", _one(5, 6, value=1), (5, 6)),
    "what is read from": ("y = Gather<axis=0>(c, i)", _one(4, 5, value=1), (4, 5)),
}  # fmt: skip


def _model(body: str, constant: Any) -> ModelProto:
    weights = {"c": constant, "i": np.array([1, 0]), "k": np.float32(0)}
    weights = {k: v for k, v in weights.items() if f"({k}" in body or f" {k}" in body}
    return model_of(
        f"g (float[N,3,4,5] x, float[N,3,1,5] z) => (float[P,Q,R,S] y) {{ {body} }}",
        weights,
        opset=17,
    )


@pytest.mark.parametrize("name", CASES)
def test_equal_elements_are_read_as_one(name: str) -> None:
    body, constant, shape = CASES[name]
    model = _model(body, constant)
    assert _shapes(model)["c"] == shape
    assert _shapes(model, without=(_STEP,))["c"] == constant.shape
    feeds = {
        "x": _random.standard_normal((2, 3, 4, 5)).astype(np.float32),
        "z": _random.standard_normal((2, 3, 1, 5)).astype(np.float32),
    }
    with np.errstate(divide="ignore"):
        expected = ReferenceEvaluator(model).run(None, feeds)
    found = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
    for mine, theirs in zip(found, expected, strict=True):
        assert_near(mine, theirs, "float: one operation")


@pytest.mark.parametrize(
    ("opset", "attributes", "shape"), [(6, "<axis=0, broadcast=1>", (3, 4)), (7, "", (1, 1))]
)
def test_operators_that_stretch_otherwise_are_left(
    opset: int, attributes: str, shape: tuple[int, ...]
) -> None:
    model = model_of(
        f"g (float[3,4] x) => (float[3,4] y) {{ y = Add{attributes}(x, c) }}",
        {"c": _one(3, 4)},
        opset=opset,
    )
    assert _shapes(model) == {"c": shape}


def test_what_callers_give_is_left() -> None:
    model = _model("y = Add(x, c)", _one(4, 5))
    model.graph.input.append(helper.make_tensor_value_info("c", 1, [4, 5]))
    assert _shapes(model) == {"c": (4, 5)}
    session = sardonyx.InferenceSession(model.SerializeToString())
    x, z = np.ones((1, 3, 4, 5), np.float32), np.ones((1, 3, 1, 5), np.float32)
    given = {"x": x, "z": z, "c": np.arange(20, dtype=np.float32).reshape(4, 5)}
    assert session.run(None, given)[0][0, 0].tolist() == (given["c"] + 1).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, ml_dtypes.bfloat16, bool])
def test_constants_count_as_read_where_all_are_equal(dtype: Any) -> None:
    same = Constant.from_array(np.ones((3, 4), dtype))
    element = same.equal_element()
    assert element is not None and element.tolist() == [1] and same.was_read
    for place in (1, -1):
        array = np.ones((300, 400), dtype)
        array.reshape(-1)[place] = 0
        other = Constant.from_array(array)
        assert other.equal_element() is None and not other.was_read


@pytest.mark.parametrize("array", [np.array(["a", "a"]), np.ones((0, 3), np.float32)])
def test_what_has_no_such_element(array: Any) -> None:
    assert (
        Constant.from_array(
            array.astype(object) if array.dtype.kind == "U" else array
        ).equal_element()
        is None
    )


@pytest.mark.parametrize("mask", ["zeros", "numbers"])
def test_another_mask_is_another_plan(mask: str) -> None:
    """A model of the same structure, whose mask hides something, is not taken for the first."""
    found = []
    x = _random.standard_normal((1, 3, 4, 5)).astype(np.float32)
    for constant in (_one(4, 5), np.arange(20, dtype=np.float32).reshape(4, 5))[
        :: 1 if mask == "zeros" else -1
    ]:
        model = model_of(
            "g (float[1,3,4,5] x) => (float[1,3,4,5] y) { a = Add(x, c) y = Softmax<axis=-1>(a) }",
            {"c": constant}, opset=17,
        )  # fmt: skip
        (y,) = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": x})
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
        assert_near(y, expected, "float: functions near zero")
        found.append(y)
    assert not np.allclose(*found)
