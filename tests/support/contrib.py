"""Operators of onnxruntime's domain, in a session: against NumPy, and against it if it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

import sardonyx
from tests.hostile.constants import folded
from tests.support import peer
from tests.support.mutants import BEYOND, mutants, refusal, wrong_attributes
from tests.support.tolerances import OF_AN_OPERATOR, assert_near

DOMAIN = "com.microsoft"
#: Operators whose first case has been changed to what makes no sense.
_CHANGED: set[str] = set()


def contrib_model(
    op_type: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    outputs: int,
    constants: Sequence[int] = (),
    symbolic: bool = False,
) -> onnx.ModelProto:
    """A model of one node, as `tests.support.ops.one_node_model`, of types that it declares."""
    names = ["" if x is None else f"x{k}" for k, x in enumerate(inputs)]
    declared, weights = [], []
    for k, x in enumerate(inputs):
        if x is None:
            continue
        if k in constants:
            weights.append(onnx.numpy_helper.from_array(x, names[k]))
            continue
        shape = [f"d{k}_{a}" if symbolic else d for a, d in enumerate(x.shape)]
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        declared.append(helper.make_tensor_value_info(names[k], kind, shape))
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op_type, names, results, name="it", domain=DOMAIN, **attributes)
    values = [onnx.ValueInfoProto(name=n) for n in results]
    graph = helper.make_graph([node], "g", declared, values, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def check_contrib(
    op_type: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    expected: Sequence[Any],
    *,
    constants: Sequence[int] = (),
    engine: bool = True,
    tolerance: str | None = None,
    step: int = 0,
    symbolic: bool = True,
) -> None:
    """Compare an operator with what NumPy gives, None for an output that is not compared.

    Args:
        op_type: The operator.
        inputs: Arrays, None where omitted.
        attributes: Of the node.
        expected: Its outputs.
        constants: Inputs that are initializers.
        engine: Whether onnxruntime can run it, too, on a CPU.
        tolerance: A row of `tolerances.TABLE`, in place of the one of the type.
        symbolic: Whether sizes are symbols, or numbers.
        step: By how much integers may differ: rounding of nearly half a step.
    """
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    feeds = {f"x{k}": x for k, x in enumerate(arrays) if x is not None and k not in constants}
    model = contrib_model(op_type, arrays, attributes, len(expected), constants, symbolic)
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
    _compare(got, expected, tolerance, step)
    if op_type not in _CHANGED:
        _CHANGED.add(op_type)
        fixed = contrib_model(op_type, arrays, attributes, len(expected), constants)
        _compare(folded(fixed, feeds, "ORT_ENABLE_ALL"), expected, tolerance, step)
        for what, model_of_it in mutants(fixed, feeds):
            text = refusal(model_of_it)
            assert text or not what.startswith(BEYOND), what
        for what, model_of_it in wrong_attributes(fixed, feeds):
            try:
                refusal(model_of_it)
            except AssertionError as error:
                raise AssertionError(what) from error
    if engine:
        onnxruntime = peer.onnxruntime()
        if onnxruntime is None:
            return
        onnxruntime.set_default_logger_severity(4)
        other = onnxruntime.InferenceSession(model.SerializeToString())
        theirs = other.run(None, feeds)
        _compare(got, [None if e is None else t for e, t in zip(expected, theirs, strict=True)],
                 tolerance, step)  # fmt: skip


def _compare(got: Sequence[Any], expected: Sequence[Any], tolerance: str | None, step: int) -> None:
    for mine, known in zip(got, expected, strict=True):
        if known is None:
            continue
        known = np.asarray(known)
        assert mine.shape == known.shape
        if mine.dtype.kind in "biu":
            assert np.abs(mine.astype(np.int64) - known.astype(np.int64)).max(initial=0) <= step
            continue
        like = OF_AN_OPERATOR[mine.dtype.itemsize] if tolerance is None else tolerance
        assert_near(mine.astype(np.float64), known.astype(np.float64), like)
