"""The face of a model: its inputs and outputs as declared, and what callers put in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.object_types import ObjectType
from sardonyx.base.sizes import Dim
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.types import ValueType
from sardonyx.ir.value import Value
from sardonyx.ops.object_values import declared_dtype
from sardonyx.runtime.declared import ValueInfo
from sardonyx.tensor.tensor import Tensor


def input_info(value: Value) -> ValueInfo:
    """What an input is.

    Raises:
        NotImplemented: It is of a kind or type that cannot be fed.
    """
    sparse = _sparse_type(value)
    if sparse is not None:  # that of an initializer, too, whose constant is dense
        dtype, shape = sparse.as_dtype() or declared_dtype(value), sparse.shape or ()
    else:
        dtype = declared_dtype(value)
        shape = (value.shape or ()) if value.kind == "tensor" else ()
    return ValueInfo(value.name, dtype, tuple(_size(value, k, d) for k, d in enumerate(shape)))


def _sparse_type(value: Value) -> ValueType | None:
    """The declared type, if it is that of a sparse tensor."""
    declared = value.declared
    return declared if declared is not None and declared.kind == "sparse" else None


def output_info(value: Value, tensor: Tensor) -> ValueInfo:
    """What an output is: numbers where they are known, else the file's own names."""
    shape = tensor.shape
    declared = value.declared.shape if value.declared is not None else None
    if isinstance(tensor.dtype, ObjectType) and tensor.dtype.form == "sparse":
        shape = declared = declared or ()
    if declared is None or len(declared) != len(shape):
        declared = shape
    found = []
    for axis, (known, said) in enumerate(zip(shape, declared, strict=True)):
        name = _size(value, axis, said)
        found.append(known if isinstance(known, int) else name if isinstance(name, str) else None)
    return ValueInfo(value.name, tensor.dtype, tuple(found))


def _size(value: Value, axis: int, dim: Dim) -> int | str | None:
    if isinstance(dim, int):
        return dim
    name = _bare(repr(dim))
    # The loader gives a dimension without a name one of this form.
    return None if name == f"{value.name}.{axis}" else name


def _bare(text: str) -> str:
    """The text without parentheses around all of it."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if letter == ")" and place == len(text) - 1 and place else text
    return text


def make_inputs(graph: Graph, names: tuple[str, ...]) -> None:
    """Turn overridable initializers into inputs, after the others and in this order."""
    by_name = {v.name: v for v in graph.overridable}
    for name in names:
        value = by_name[name]
        sparse = _sparse_type(value)
        if sparse is not None:
            value.kind, value.type = "sparse", sparse
        elif value.declared is not None and value.declared.kind == "tensor":
            value.shape = value.declared.shape
        value.constant = None
        del graph.initializers[name]
        graph.inputs.append(value)


def keep_outputs(graph: Graph, names: tuple[str, ...]) -> None:
    """Give out these outputs alone, or inner values of the graph, in this order; () for all.

    Raises:
        InvalidArgument: There is no such value.
    """
    if not names:
        return
    inner = (value for node in graph.nodes for value in node.outputs)
    values = [*inner, *graph.inputs, *graph.initializers.values(), *graph.outputs]
    by_name = {value.name: value for value in values if value.name}
    for name in names:
        if name not in by_name:
            what = f"The model has no output {name!r}, nor an inner tensor of that name"
            raise InvalidArgument(message("run", what))
    graph.outputs.clear()
    graph.outputs.extend(by_name[name] for name in names)


def replace_initializers(graph: Graph, contents: Mapping[str, Any]) -> None:
    """Give initializers other contents.

    Raises:
        InvalidArgument: There is no such initializer, or type or shape differ.
    """
    for name, array in contents.items():
        value = graph.initializers.get(name)
        if value is None or value.constant is None:
            raise InvalidArgument(
                message(
                    "add_initializer", f"The model has no initializer {name!r}",
                    expected=f"one of {list(graph.initializers)[:10]}",
                )
            )  # fmt: skip
        old = value.constant
        if array.shape != old.shape or array.dtype != old.dtype.numpy:
            raise InvalidArgument(
                message(
                    f"initializer {name}", "The contents do not fit",
                    expected=f"{old.dtype.numpy}{list(old.shape)}",
                    got=f"{array.dtype}{list(array.shape)}",
                )
            )  # fmt: skip
        value.constant = Constant.from_array(np.array(array), old.dtype)
