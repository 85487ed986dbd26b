"""Models of one node that no longer fit its definition: each with one thing wrong.

What is wrong by the types and the number of inputs is made out of signatures alone, for every
operator. Ranks, sizes and axes need a node that is right to begin with.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from sardonyx.base import dtypes, errors
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.ops.core.registry import OTHER_RANKS
from sardonyx.passes.infer import infer

NAME = "the_node"
#: How the description of a mutant begins that names an axis which there is not.
BEYOND = "no such axis: "
#: Attributes that name axes.
AXES = frozenset(
    "axis axes batch_axis time_axis perm scan_input_axes scan_output_axes direction_axis".split()
)


def refusal(model: onnx.ModelProto) -> str:
    """The text that refuses a model, which names the node; nothing if it is taken.

    Raises:
        AssertionError: Something else than a refusal came, or its text does not say where.
    """
    try:
        graph = load(model)
        infer(graph)
        lower(graph)
    except errors.EngineError as error:
        raise AssertionError(f"An error that nobody foresaw: {error}") from error
    except (errors.InvalidGraph, errors.NotImplemented, errors.InvalidArgument) as error:
        text, cause = str(error), error.__cause__
        foreign = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
        # Ranks have one rule for all operators: sizes that are not there cannot be taken apart.
        known = isinstance(cause, errors.SardonyxError) or OTHER_RANKS in text
        assert known or not isinstance(cause, foreign), f"A rule that is not checked: {text}"
        assert NAME in text, f"It does not name the node: {text}"
        return text
    return ""


def is_refused_by_the_standard(model: onnx.ModelProto) -> bool:
    """Whether onnx's own inference of types and shapes refuses the node."""
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        return NAME in str(error)
    return False


def with_types(
    op_type: str, domain: str, version: int, types: list[dtypes.DType | None],
    attributes: Mapping[str, Any],
) -> onnx.ModelProto:  # fmt: skip
    """A node whose inputs, all of shape [2, 2], have these types; None for one that is omitted."""
    names = ["" if t is None else f"x{k}" for k, t in enumerate(types)]
    inputs = [
        helper.make_tensor_value_info(name, t.onnx_id, [2, 2])
        for name, t in zip(names, types, strict=True)
        if t is not None
    ]
    node = helper.make_node(op_type, names, ["y"], NAME, domain=domain, **attributes)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 28)] if domain else []
    imports.append(helper.make_opsetid(domain, version))
    return helper.make_model(graph, opset_imports=imports, ir_version=14)


def mutants(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(what is wrong, model) for ranks, sizes and axes of the inputs of a model of one node.

    Feeds of whole numbers whose contents may decide on shapes become constants.
    """
    base = copy.deepcopy(model)
    (node,) = base.graph.node
    node.name = NAME
    del base.graph.value_info[:]
    for output in base.graph.output:
        output.ClearField("type")
    tensors = {v.name for v in base.graph.input if v.type.HasField("tensor_type")}
    arrays = {k: x for k, x in feeds.items() if k in tensors}
    for name, x in arrays.items():
        rank = x.ndim
        for what, shape in (
            ("one axis more", (*x.shape, 2)),
            ("one axis less", x.shape[1:]),
            ("a scalar", ()),
            *((f"axis {k} longer", _longer(x.shape, k)) for k in range(rank)),
        ):
            if shape != x.shape:
                yield f"{name}: {what}", _reshaped(base, arrays, name, shape)
    ranks = [x.ndim for x in arrays.values()]
    beyond = max(ranks, default=0) + 7
    for attribute in node.attribute:
        if attribute.name in AXES:
            for wrong in (beyond, -beyond - 1):
                changed = _reshaped(base, arrays, "", ())
                held = changed.graph.node[0].attribute
                found = next(a for a in held if a.name == attribute.name)
                if found.type == onnx.AttributeProto.INT:
                    found.i = wrong
                elif found.ints:
                    found.ints[0] = wrong
                yield f"{BEYOND}{attribute.name} = {wrong}", changed


#: What takes the place of an attribute, by its type; lists get it in place of their first item.
_WRONG: dict[int, tuple[Any, ...]] = {
    onnx.AttributeProto.INT: (-1, 0, 7, 2**31, -(2**62)),
    onnx.AttributeProto.FLOAT: (float("nan"), -1.0, 0.0),
    onnx.AttributeProto.STRING: ("bogus", "", b"\xff"),
    onnx.AttributeProto.INTS: (-1, 0, 7, 2**62),
    onnx.AttributeProto.FLOATS: (float("nan"), -1.0),
    onnx.AttributeProto.STRINGS: ("bogus",),
}


def wrong_attributes(
    model: onnx.ModelProto, feeds: Mapping[str, Any]
) -> Iterator[tuple[str, onnx.ModelProto]]:
    """(what is changed, model) for values of attributes, and lists with too few or many items."""
    base = copy.deepcopy(model)
    (node,) = base.graph.node
    node.name = NAME
    del base.graph.value_info[:]
    for output in base.graph.output:
        output.ClearField("type")
    tensors = {v.name for v in base.graph.input if v.type.HasField("tensor_type")}
    arrays = {k: x for k, x in feeds.items() if k in tensors}
    for number, attribute in enumerate(node.attribute):
        given = helper.get_attribute_value(attribute)
        for wrong in _WRONG.get(attribute.type, ()):
            values = [wrong]
            if isinstance(given, list):
                values = [[wrong, *given[1:]], given[:-1], [*given, wrong]]
            for value in values:
                changed = _reshaped(base, arrays, "", ())
                made = helper.make_attribute(attribute.name, value, attr_type=attribute.type)
                changed.graph.node[0].attribute[number].CopyFrom(made)
                yield f"{attribute.name} = {str(value)[:60]}", changed


def _longer(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return tuple(d + 5 * (k == axis) for k, d in enumerate(shape))


def _reshaped(
    base: onnx.ModelProto, arrays: Mapping[str, Any], which: str, shape: tuple[int, ...]
) -> onnx.ModelProto:
    """The model with its inputs of fixed shapes, one of them another one."""
    model = copy.deepcopy(base)
    given = [value for value in model.graph.input if value.name not in arrays]
    for name, x in arrays.items():
        decides = x.dtype.kind in "iub" and x.size <= 64
        if decides:
            value = x if name != which else np.resize(x, shape)
            model.graph.initializer.append(numpy_helper.from_array(value, name))
        else:
            kind = next(v for v in base.graph.input if v.name == name).type.tensor_type.elem_type
            sizes = list(shape if name == which else x.shape)
            given.append(helper.make_tensor_value_info(name, kind, sizes))
    del model.graph.input[:]
    model.graph.input.extend(given)
    return model
