"""One operator at a time: a graph of one node, inferred, lowered, evaluated, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

import sardonyx.ops.core.references  # noqa: F401 - registers what the kernels mean
from sardonyx.base import sizes
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.infer import infer
from sardonyx.tensor.evaluate import SizesFound, evaluate_all
from tests.support.tolerances import OF_AN_OPERATOR, assert_near


def one_node_model(
    op_type: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    opset: int,
    outputs: int = 1,
    *,
    domain: str = "",
    constants: Sequence[int] = (),
    symbolic: bool = False,
) -> onnx.ModelProto:
    """A model of one node.

    Args:
        op_type: The operator.
        inputs: Arrays, or None for omitted inputs.
        attributes: Of the node.
        opset: Version of the operator set.
        outputs: How many outputs.
        domain: Of the operator.
        constants: Positions of inputs that are initializers.
        symbolic: Declare every size of the inputs as a symbol `d{input}_{axis}`, but 1.
    """
    names = [f"x{k}" if x is not None else "" for k, x in enumerate(inputs)]
    declared, initializers = [], []
    for k, x in enumerate(inputs):
        if x is None:
            continue
        if k in constants:
            initializers.append(onnx.numpy_helper.from_array(np.asarray(x), names[k]))
            continue
        shape = [f"d{k}_{a}" if symbolic and d != 1 else d for a, d in enumerate(x.shape)]
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        declared.append(helper.make_tensor_value_info(names[k], kind, shape))
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op_type, names, results, domain=domain, **attributes)
    graph = helper.make_graph(
        [node], "g", declared, [onnx.ValueInfoProto(name=n) for n in results], initializers
    )
    imports = [helper.make_opsetid("", opset)] + (
        [helper.make_opsetid(domain, 1)] if domain else []
    )
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def run_model(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[np.ndarray]:
    """Infer, lower and evaluate; also checks that inferred types and shapes are those computed."""
    graph = load(model)
    unknown = infer(graph)
    assert not unknown, unknown
    lowered = lower(graph)
    symbols: dict[str, int] = {}
    for value, buffer in lowered.inputs.items():
        for d, n in zip(buffer.shape, feeds[value.name].shape, strict=True):
            atom = sizes.as_atom(d)
            if atom is not None:
                symbols[atom.name] = n
    arrays = {buffer: feeds[value.name] for value, buffer in lowered.inputs.items()}
    found = SizesFound(lowered.measured, lowered.ends, lowered.assumptions)
    results = evaluate_all(lowered.outputs.values(), arrays, symbols, found=found)
    for value, result in zip(lowered.outputs, results, strict=True):
        assert len(value.shape) == result.ndim
        for d, extent in zip(value.shape, result.shape, strict=True):
            assert sizes.is_measured(d) or sizes.evaluate(d, symbols) == extent
        assert value.dtype.numpy == result.dtype
        if value.elements is not None and not any(map(sizes.is_measured, value.elements)):
            known = [
                e if isinstance(e, float) else sizes.evaluate(e, symbols) for e in value.elements
            ]
            assert known == result.reshape(-1).tolist()
    return results


def assert_close(actual: np.ndarray, expected: Any, tolerance: str | None = None) -> None:
    """Equal in dtype and shape, and in value as a row of tolerances says: that of the type."""
    expected = np.asarray(expected)
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if actual.dtype.kind in "biu":
        np.testing.assert_array_equal(actual, expected)
        return
    like = OF_AN_OPERATOR[actual.dtype.itemsize] if tolerance is None else tolerance
    assert_near(actual.astype(np.float64), expected.astype(np.float64), like)


def check_op(
    op_type: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any] | None = None,
    opset: int = 21,
    *,
    outputs: int = 1,
    constants: Sequence[int] = (),
    domain: str = "",
    expected: Sequence[Any] | None = None,
    tolerance: str | None = None,
    symbolic: bool | None = None,
) -> None:
    """Compare an operator with onnx's reference, or with `expected`.

    Runs with fixed sizes and, unless `symbolic` says otherwise, with symbolic ones.
    """
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    feeds = {f"x{k}": x for k, x in enumerate(arrays) if x is not None and k not in constants}
    for with_symbols in (False, True) if symbolic is None else (symbolic,):
        model = one_node_model(
            op_type,
            arrays,
            attributes or {},
            opset,
            outputs,
            domain=domain,
            constants=constants,
            symbolic=with_symbols,
        )
        wanted = expected
        if wanted is None:
            with np.errstate(all="ignore"):
                wanted = ReferenceEvaluator(model).run(None, feeds)
        for actual, known in zip(run_model(model, feeds), wanted, strict=True):
            assert_close(actual, known, tolerance)
