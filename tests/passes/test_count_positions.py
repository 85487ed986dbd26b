"""Which lists of positions are counted instead, and that results stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator

import sardonyx
from sardonyx.loader.load import load
from sardonyx.passes.pipeline import PassLook, optimise
from tests.support.session import model_of

_STEP = "count positions"
_HUNDRED = np.arange(100)
_OFF = np.arange(100)
_OFF[70] = 7
#: Body of `x: float[N,100], i: int64`, the constant `c`, whether it is counted.
CASES: dict[str, tuple[str, Any, bool]] = {
    "compared with a number": (
        "k = Greater(c, i) z = Sub(x, x) y = Where(k, x, z)", _HUNDRED, True,
    ),
    "along another axis": (
        "k = Less(c, i) z = Sub(x, x) y = Where(k, x, z)", _HUNDRED.reshape(1, 100), True,
    ),
    "backwards": ("y = Gather<axis=1>(x, c)", 99 - _HUNDRED, True),
    "few of every other": ("y = Gather<axis=1>(x, c)", 3 + 2 * np.arange(48), False),
    "from 5 on, below 0": ("y = Gather<axis=1>(x, c)", np.arange(5, 75) - 80, True),
    "in a branch": (
        "z = Constant<value_int=3>() l = Less(i, z)"
        " y = If(l) <then_branch = t () => (float[P,Q] u) { u = Gather<axis=1>(x, c) },"
        " else_branch = e () => (float[P,Q] v) { v = Neg(x) }>",
        99 - _HUNDRED, True,
    ),
    "for several nodes": ("a = Gather<axis=1>(x, c) y = Gather<axis=1>(a, c)", 99 - _HUNDRED, True),
    "a shape of many axes": (
        "a = Gather<axis=1>(x, c) b = Constant<value_ints=[-1,100]>() y = Reshape(a, b)",
        (99 - _HUNDRED).reshape(1, 1, 100, 1), True,
    ),
    "one number off": ("y = Gather<axis=1>(x, c)", _OFF, False),
    "equal numbers": ("y = Gather<axis=1>(x, c)", np.full(100, 3), False),
    "two axes": ("y = Gather<axis=1>(x, c)", _HUNDRED.reshape(2, 50)[:, 15:], False),
    "few": ("y = Gather<axis=1>(x, c)", np.arange(64), False),
    "other numbers": ("y = Gather<axis=1>(x, c)", np.arange(100, dtype=np.int32), False),
    "floats": ("k = Mul(x, c) y = Neg(k)", np.arange(100, dtype=np.float32), False),
}  # fmt: skip


def _model(body: str, constant: Any, opset: int = 17) -> ModelProto:
    text = f"g (float[N,100] x, int64 i) => (float[P,Q] y) {{ {body} }}"
    if constant.ndim > 1 and "Gather" in body:
        shape = ",".join("PQRSTU"[: constant.ndim + 1])
        text = text.replace(
            "float[P,Q] y", "float[P,Q] y" if "Reshape" in body else f"float[{shape}] y"
        )
    return model_of(text, {"c": constant}, opset=opset)


def _counts(model: ModelProto, **options: Any) -> bool:
    graph = load(model.SerializeToString())
    optimise(graph, look=PassLook(verify=True), **options)
    return any(node.op_type == "Range" for node in graph.walk())


@pytest.mark.parametrize("name", CASES)
def test_positions_are_counted(name: str) -> None:
    body, constant, is_counted = CASES[name]
    model = _model(body, constant)
    assert _counts(model) == is_counted
    assert not _counts(model, without=(_STEP,))
    session = sardonyx.InferenceSession(model.SerializeToString())
    x = np.random.default_rng(1).standard_normal((3, 100)).astype(np.float32)
    for i in (-1, 2, 50, 200):
        feeds = {"x": x, "i": np.array(i)}
        (expected,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected)


def test_an_operator_set_without_range() -> None:
    assert not _counts(_model("y = Gather<axis=1>(x, c)", 99 - _HUNDRED, opset=10))


def test_what_is_given_out_or_in_is_left() -> None:
    body = "y = Gather<axis=1>(x, c)"
    given = _model(body, 99 - _HUNDRED)
    given.graph.input.append(helper.make_tensor_value_info("c", 7, [100]))
    assert not _counts(given)
    session = sardonyx.InferenceSession(given.SerializeToString())
    x, i = np.arange(200, dtype=np.float32).reshape(2, 100), np.array(0)
    got = session.run(None, {"x": x, "i": i, "c": np.full(100, 7)})[0]
    assert got.tolist() == x[:, np.full(100, 7)].tolist()
    out = _model(body, 99 - _HUNDRED)
    out.graph.output.append(helper.make_tensor_value_info("c", 7, [100]))
    assert not _counts(out)
    got = sardonyx.InferenceSession(out.SerializeToString()).run(None, {"x": x, "i": i})
    assert [g.tolist() for g in got] == [x[:, ::-1].tolist(), (99 - _HUNDRED).tolist()]


def test_an_index_outside_is_still_refused() -> None:
    model = _model("y = Gather<axis=1>(x, c)", np.arange(50, 150))
    session = sardonyx.InferenceSession(model.SerializeToString())
    with pytest.raises(IndexError, match="Gather"):
        session.run(None, {"x": np.zeros((2, 100), np.float32), "i": np.array(0)})
