"""CumSum and CumProd through sessions, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.ops.core.registry import op
from sardonyx.tensor.language import Tensor
from sardonyx.tensor.tensor import make_call

_random = np.random.default_rng(7)
_KINDS = [
    np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.int32, np.int64, np.uint32,
    np.uint64,
]  # fmt: skip


@op("RunningAlong", 1, domain="test.special")
def _running_along(
    x: Tensor, axis: Tensor, *, kind: str = "sum", exclusive: int = 0, reverse: int = 0
) -> Tensor:
    """The scan kernel along an axis that only a run knows."""
    (result,) = make_call(
        "scan", (x, axis), ((x.shape, x.dtype),),
        kind=kind, exclusive=bool(exclusive), reverse=bool(reverse),
    )  # fmt: skip
    return result


def _session(
    name: str, element_kind: Any, shape: list[int | str], axis: int | None, **attributes: Any
) -> sardonyx.InferenceSession:
    """One node; an axis of None is a second input."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(element_kind))
    inputs = [helper.make_tensor_value_info("x", element, shape)]
    weights = []
    if axis is None:
        inputs.append(helper.make_tensor_value_info("axis", 7, []))
    else:
        weights = [numpy_helper.from_array(np.array(axis, np.int64), "axis")]
    domain = "test.special" if name == "RunningAlong" else ""
    node = helper.make_node(name, ["x", "axis"], ["y"], domain=domain, **attributes)
    wanted = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph([node], "scan", inputs, wanted, weights)
    opsets = [helper.make_opsetid("", 26), helper.make_opsetid("test.special", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 10
    return sardonyx.InferenceSession(model.SerializeToString())


def _expected(x: Any, axis: int, kind: str, exclusive: int, reverse: int) -> Any:
    rows = np.moveaxis(x, axis, -1)
    rows = rows[..., ::-1] if reverse else rows
    wide = np.float32 if x.dtype.itemsize == 2 else x.dtype
    run, start = (np.cumsum, 0) if kind == "sum" else (np.cumprod, 1)
    result = run(rows, axis=-1, dtype=wide)
    if exclusive:
        first = np.full_like(result[..., :1], start)
        result = np.concatenate([first, result], axis=-1)[..., :-1]
    result = result[..., ::-1] if reverse else result
    return np.moveaxis(result, -1, axis).astype(x.dtype)


def _values(shape: tuple[int, ...], kind: Any) -> Any:
    """Numbers whose sums and products are exact for a while."""
    choices = np.array([1, 2, 3] if np.dtype(kind).kind in "iu" else [0.5, 1, -2, 1, -1])
    return choices[_random.integers(0, len(choices), shape)].astype(kind)


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axes_at_three_sizes(axis: int, name: str, exclusive: int, reverse: int) -> None:
    attributes = {"exclusive": exclusive, "reverse": reverse}
    session = _session(name, np.float32, ["A", "B", "C"], axis, **attributes)
    for shape in [(2, 3, 4), (1, 9, 33), (17, 1, 5), (2, 5, 64), (3, 2, 150)]:
        x = _values(shape, np.float32)
        (got,) = session.run(None, {"x": x})
        kind = name.removeprefix("Cum").lower()
        np.testing.assert_array_equal(got, _expected(x, axis, kind, exclusive, reverse))


@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize("axis", [0, 1])
def test_types(axis: int, kind: Any, name: str) -> None:
    x = _values((5, 83) if axis == 0 else (5, 12), kind)
    (got,) = _session(name, kind, list(x.shape), axis).run(None, {"x": x})
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, _expected(x, axis, name.removeprefix("Cum").lower(), 0, 0))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
@pytest.mark.parametrize("axis", [0, 1])
def test_no_elements(shape: tuple[int, int], axis: int) -> None:
    (got,) = _session("CumSum", np.float32, ["A", "B"], axis).run(
        None, {"x": np.zeros(shape, np.float32)}
    )
    assert got.shape == shape


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("kind", ["sum", "prod"])
def test_an_axis_known_in_the_run(kind: str, exclusive: int, reverse: int) -> None:
    attributes = {"kind": kind, "exclusive": exclusive, "reverse": reverse}
    session = _session("RunningAlong", np.float32, ["A", "B", "C"], None, **attributes)
    for shape in [(2, 3, 4), (1, 9, 33), (17, 20, 5), (0, 3, 2), (3, 0, 2)]:
        x = _values(shape, np.float32)
        for axis in (0, 1, 2, -1, -3):
            (got,) = session.run(None, {"x": x, "axis": np.array(axis)})
            np.testing.assert_array_equal(got, _expected(x, axis, kind, exclusive, reverse))
    with pytest.raises(RuntimeError, match="index 3 is out of range for an axis of size 3"):
        session.run(None, {"x": _values((2, 3, 4), np.float32), "axis": np.array(3)})
