"""Nodes that break a rule of their operator are refused by name, for every operator there is.

Types and the number of inputs are taken from the signatures. Ranks, sizes and axes are changed in
ONNX's own cases, one for each operator: a change is refused, or it still makes sense; what onnx's
inference refuses must be. (Operators of onnxruntime's domain: `tests/support/contrib.py` does the
same with the first case of each.)
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import helper

from sardonyx.base import dtypes
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ops.core.registry import OpRecord, records
from sardonyx.ops.core.signatures import Signature, signature_of
from tests.conformance.cases import Case, all_cases
from tests.support.mutants import (
    BEYOND,
    is_refused_by_the_standard,
    mutants,
    refusal,
    with_types,
    wrong_attributes,
)
from tests.support.ops import one_node_model

#: Operators with graphs inside, whose inputs are those of the graphs.
_WITH_GRAPHS = {"If", "Loop", "Scan", "Gradient", "FlexAttention"}
#: onnx's inference refuses every one of these: it expands them to a function with a Constant that
#: it takes for one without a value.
_INFERENCE_FAILS = {"MeanVarianceNormalization"}
#: EPContext takes anything and refuses it; Constant is read where the model is loaded.
_OTHERS = {"EPContext", "Constant"}
#: What an attribute of a type may be.
_VALUES = {
    int: 1, float: 1.0, str: "x", Constant: helper.make_tensor("t", 1, [1], [1.0]),
    Graph: helper.make_graph([], "g", [], []),
}  # fmt: skip
#: Other tests add operators of domains of their own.
RECORDS = [
    r
    for r in records()
    if r.op_type not in _WITH_GRAPHS | _OTHERS and not r.domain.startswith("test.")
]
WITH_INPUTS = [
    r for r in RECORDS if (s := signature_of(r.domain, r.op_type, r.since)) is not None and s.inputs
]


def named(record: OpRecord) -> str:
    return repr(record)


def attributes_of(record: OpRecord) -> dict[str, Any]:
    """Something of the right type for each attribute that must be given."""
    made: dict[str, Any] = {}
    for name in record.required:
        is_list, (kind, *_), _ = record.kinds[name]
        value = _VALUES[kind]
        made[name] = [value] if is_list else value
    return made


def fitting(record: OpRecord) -> tuple[Signature, list[dtypes.DType | None]]:
    """The first type that each input may have; one type for each type parameter."""
    signature = signature_of(record.domain, record.op_type, record.since)
    assert signature is not None
    chosen: dict[str, dtypes.DType | None] = {}
    for parameter in signature.inputs:
        allowed = signature.types.get(parameter.type) or {parameter.type}
        known = [d for d in dtypes.ALL if d.name in allowed]
        chosen.setdefault(parameter.type, known[0] if known else None)
    return signature, [chosen[p.type] for p in signature.inputs][: record.most_inputs]


@pytest.mark.parametrize("record", WITH_INPUTS, ids=named)
def test_a_type_that_an_input_may_not_have(record: OpRecord) -> None:
    signature, types = fitting(record)
    for number, parameter in enumerate(signature.inputs[: len(types)]):
        allowed = signature.types.get(parameter.type) or {parameter.type}
        wrong = next((d for d in dtypes.ALL if d.name not in allowed), None)
        if wrong is None or None in types[: number + 1]:
            continue
        given = [*types[:number], wrong, *types[number + 1 :]]
        model = with_types(
            record.op_type, record.domain, record.since, given, attributes_of(record)
        )
        assert f"input {parameter.name} (number {number}) is wrong" in refusal(model)


@pytest.mark.parametrize("record", WITH_INPUTS, ids=named)
def test_two_types_where_one_is_meant(record: OpRecord) -> None:
    signature, types = fitting(record)
    seen: set[str] = set()
    for number, parameter in enumerate(signature.inputs[: len(types)]):
        allowed = signature.types.get(parameter.type, frozenset())
        others = [d for d in dtypes.ALL if d.name in allowed and d is not types[number]]
        repeated = parameter.type in seen
        seen.add(parameter.type)
        if not repeated or parameter.mark == "*" or not others or None in types:
            continue
        given = [*types[:number], others[0], *types[number + 1 :]]
        model = with_types(
            record.op_type, record.domain, record.since, given, attributes_of(record)
        )
        text = refusal(model)
        assert f"input {parameter.name} (number {number}) differs" in text
        assert others[0].name in text


@pytest.mark.parametrize("record", RECORDS, ids=named)
def test_numbers_of_inputs(record: OpRecord) -> None:
    _, types = fitting(record)
    attributes = attributes_of(record)
    if record.needed:
        model = with_types(record.op_type, record.domain, record.since, [], attributes)
        assert "is missing" in refusal(model)
    if record.most_inputs is not None and None not in types:
        given = [*types, *[dtypes.FLOAT] * (record.most_inputs + 1 - len(types))]
        model = with_types(record.op_type, record.domain, record.since, given, attributes)
        assert "too many inputs" in refusal(model)


@pytest.mark.parametrize("record", RECORDS, ids=named)
def test_attributes(record: OpRecord) -> None:
    _, types = fitting(record)
    good = attributes_of(record)
    unknown = {**good, "no_such_attribute": 1}
    model = with_types(record.op_type, record.domain, record.since, types, unknown)
    assert "no attribute 'no_such_attribute'" in refusal(model)
    for name in record.required:
        rest = {k: v for k, v in good.items() if k != name}
        model = with_types(record.op_type, record.domain, record.since, types, rest)
        assert f"attribute {name!r} is missing" in refusal(model)
    for name, kind in record.kinds.items():
        if name not in record.attributes:
            continue
        wrong = 1.5 if str in kind[1] else "x"
        model = with_types(
            record.op_type, record.domain, record.since, types, {**good, name: wrong}
        )
        assert f"{name!r} has the wrong type" in refusal(model)


def _one_for_each() -> dict[str, Case]:
    """For each operator the case with most attributes."""
    found: dict[str, Case] = {}
    for case in all_cases():
        nodes = case.model.graph.node
        plain = all(isinstance(x, np.ndarray) for x in case.runs[0][0] if x is not None)
        if len(nodes) != 1 or not plain or nodes[0].op_type in _WITH_GRAPHS | {"SequenceMap"}:
            continue
        key = f"{nodes[0].domain}.{nodes[0].op_type}"
        if key not in found or len(nodes[0].attribute) > len(
            found[key].model.graph.node[0].attribute
        ):
            found[key] = case
    return found


@pytest.mark.parametrize("case", [pytest.param(c, id=k) for k, c in _one_for_each().items()])
def test_ranks_sizes_and_axes(case: Case) -> None:
    for what, model in mutants(case.model, case.feeds(case.runs[0][0])):
        text = refusal(model)
        must = what.startswith(BEYOND) or (
            model.graph.node[0].op_type not in _INFERENCE_FAILS
            and is_refused_by_the_standard(model)
        )
        assert text or not must, what


@pytest.mark.parametrize("case", [pytest.param(c, id=k) for k, c in _one_for_each().items()])
def test_values_of_attributes(case: Case) -> None:
    for what, model in wrong_attributes(case.model, case.feeds(case.runs[0][0])):
        try:
            refusal(model)
        except AssertionError as error:
            raise AssertionError(what) from error


def _array(kind: str, *shape: int) -> np.ndarray:
    return np.ones(shape, {"f": np.float32, "i": np.int64}[kind])


#: Operator, domain, inputs (those of whole numbers are constants), attributes, what the error says.
NAMED: list[tuple[str, str, list[np.ndarray | None], dict[str, Any], str]] = [
    ("Reshape", "", [_array("f", 4), _array("i", 1, 1)], {}, r"\[The shape\] It needs one axis"),
    ("Expand", "", [_array("f", 4), _array("i", 1, 1)], {}, r"\[The shape\] It needs one axis"),
    ("Tile", "", [_array("f", 4), _array("i", 1, 1)], {}, "The number of repeats. It needs one"),
    ("ConstantOfShape", "", [_array("i")], {}, r"\[The shape\] It needs one axis. Got \[\]"),
    ("TopK", "", [_array("f", 4), _array("i")], {}, "The number of elements. It needs one axis"),
    ("Slice", "", [_array("f", 4), _array("i", 1, 1), _array("i", 1)], {}, "It needs one axis"),
    ("SpaceToDepth", "", [_array("f", 1, 1, 4, 5)], {"blocksize": 2}, "no multiple of 2"),
    (
        "Attention", "",
        [_array("f", 1, 1, 2, 4), _array("f", 1, 1, 3, 4), _array("f", 1, 1, 3, 4),
         _array("f", 2, 4)],
        {}, "The mask is longer than keys. Expected at most 3, got 4",
    ),
    (
        "RotaryEmbedding", "",
        [_array("f", 1, 1, 2, 8), _array("f", 1, 2, 4), _array("f", 1, 2, 4)],
        {"rotary_embedding_dim": 4}, "The width of a cache",
    ),
    (
        "MoE", "com.microsoft",
        [_array("f", 5, 16), _array("f", 5, 9), _array("f", 4, 32, 16), None,
         _array("f", 4, 16, 32)],
        {"k": 2}, "The numbers of experts differ. Expected 4, got 9",
    ),
    ("Tile", "", [_array("f", 4), -_array("i", 1)], {}, "It is out of bounds"),
    ("DFT", "", [_array("f", 1, 4, 1), _array("i") * 0], {}, "It is out of bounds"),
    ("DFT", "", [_array("f", 1, 4, 2)], {"onesided": 1}, "Both sides of a complex signal"),
    ("Split", "", [_array("f", 4)], {"num_outputs": 3}, "It has 1 outputs. Got num_outputs = 3"),
    ("GlobalMaxPool", "", [_array("f", 4)], {}, "It has no channels"),
    ("GlobalLpPool", "", [_array("f", 4, 4, 4)], {"p": 0}, "no norm of the order 0"),
    (
        "BatchNormalization", "",
        [_array("f", 2, 4), _array("f", 4), _array("f", 1, 4), _array("f", 4), _array("f", 4)],
        {}, "Its bias has the wrong rank",
    ),
    ("BatchNormalization", "", [_array("f"), *[_array("f", 1)] * 4], {}, "at least one axis"),
    (
        "DequantizeLinear", "", [np.ones((4, 4), np.int8), _array("f", 2, 4)],
        {"axis": 0, "block_size": -2}, "Bad block_size",
    ),
    (
        "DequantizeLinear", "", [np.ones(4, np.int8), _array("f")], {"output_dtype": 7},
        "The result has no type int64",
    ),
    (
        "QuantizeLinear", "", [_array("f", 4), _array("f")], {"output_dtype": 1},
        "There are no codes of type float",
    ),
    (
        "QuantizeLinear", "", [_array("f", 4), _array("f")], {"precision": 2},
        "A quotient has no precision uint8",
    ),
    (
        "Conv", "", [_array("f", 1, 1, 4, 4), _array("f", 1, 1, 2, 2)], {"kernel_shape": [2]},
        "whose taps kernel_shape tells",
    ),
    (
        "ConvTranspose", "", [_array("f", 1, 1, 4, 4), _array("f", 1, 1, 2, 2)],
        {"kernel_shape": [2, 3]}, "whose taps kernel_shape tells",
    ),
    (
        "ConvTranspose", "", [_array("f", 1, 1, 4, 4), _array("f", 1, 1, 2, 2)], {"group": 0},
        "There are 0 groups",
    ),
    (
        "Resize", "", [_array("f", 4, 4), None, _array("f", 2)], {"axes": [1, 1]},
        "An axis comes twice",
    ),
    (
        "Attention", "", [_array("f", 1, 1, 2, 4)] * 3, {"softmax_precision": 7},
        "Bad softmax_precision",
    ),
    (
        "Attention", "", [_array("f", 1, 1, 2, 4)] * 3, {"qk_matmul_output_mode": -1},
        "Bad qk_matmul_output_mode",
    ),
    ("MelWeightMatrix", "", [_array("i")] * 3 + [_array("f")] * 2, {"output_datatype": 99},
     "no type of numbers 99"),
    ("GRU", "", [_array("f", 1, 1, 1), _array("f", 1, 3, 1), _array("f", 1, 3, 1)], {"layout": 2},
     "There is no such one"),
    ("QGemm", "com.microsoft", [np.uint8([1]), np.float32(1), np.uint8(0)] * 2, {}, "two matrices"),
    ("Unique", "com.microsoft", [_array("f", 2, 2)], {}, "It needs one axis"),
]  # fmt: skip


#: Operator, version, inputs, attributes, what the error says.
FORMER: list[tuple[str, int, list[np.ndarray | None], dict[str, Any], str]] = [
    *((op, 6, [_array("f", 2, 2), _array("f", 2)], {}, "An input, before version 8, has the wrong")
      for op in ("Max", "Min", "Sum", "Mean")),
    ("Pad", 2, [_array("f", 3)], {"pads": [-2, -2]}, "It removes more of axis 0 than there is"),
    ("Flatten", 9, [_array("f", 2, 2)], {"axis": -1}, "not negative before version 11"),
    ("Split", 11, [_array("f", 3)], {}, "does not fall into 2 equal parts"),
    ("Upsample", 7, [_array("f", 2, 2)], {"scales": [0.5, 1.0]}, "The scales are out of bounds"),
    ("BatchNormalization", 7, [_array("f", 2, 4, 4), *[_array("f", 4, 4)] * 4], {},
     "Its scale has the wrong rank"),
    ("BatchNormalization", 7, [_array("f", 2, 4, 4), *[_array("f", 4)] * 4], {"spatial": 0},
     "Its scale has the wrong rank"),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "version", "inputs", "attributes", "text"), FORMER)
def test_former_versions_refused_by_name(
    op_type: str,
    version: int,
    inputs: list[np.ndarray | None],
    attributes: dict[str, Any],
    text: str,
) -> None:
    model = one_node_model(op_type, inputs, attributes, version, 2 if op_type == "Split" else 1)
    model.graph.node[0].name = "the_node"
    assert re.search(f"the_node.*{text}", refusal(model))


@pytest.mark.parametrize(("op_type", "domain", "inputs", "attributes", "text"), NAMED)
def test_refused_by_name(
    op_type: str,
    domain: str,
    inputs: list[np.ndarray | None],
    attributes: dict[str, Any],
    text: str,
) -> None:
    held = [k for k, x in enumerate(inputs) if x is not None and x.dtype == np.int64]
    model = one_node_model(op_type, inputs, attributes, 28, domain=domain, constants=held)
    model.graph.node[0].name = "the_node"
    assert re.search(f"the_node.*{text}", refusal(model))
