"""The face of a model: its inputs and outputs as declared, and what callers put in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from sardonyx.base import sizes
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.object_types import ObjectType
from sardonyx.base.sizes import Dim
from sardonyx.base.substitution import substitute
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.patch import remove_dead
from sardonyx.ir.types import ValueType
from sardonyx.ir.value import Value
from sardonyx.ops.core.object_values import declared_dtype
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


def output_info(value: Value, tensor: Tensor, names: Mapping[str, str]) -> ValueInfo:
    """What an output is: numbers where they are known, else the file's own names.

    Where the file says nothing, sizes are written out, if they are made of those of inputs.

    Args:
        value: The output.
        tensor: What is computed.
        names: What the inputs' sizes are called (`names_of`).
    """
    shape = tensor.shape
    declared = value.declared.shape if value.declared is not None else None
    if isinstance(tensor.dtype, ObjectType) and tensor.dtype.form == "sparse":
        shape = declared = declared or ()
    is_declared = declared is not None and len(declared) == len(shape)
    found: list[int | str | None] = []
    for axis, known in enumerate(shape):
        if isinstance(known, int):
            found.append(known)
        elif is_declared and declared is not None:
            name = _size(value, axis, declared[axis])
            found.append(name if isinstance(name, str) else None)
        else:
            found.append(_written_out(known, names))
    return ValueInfo(value.name, tensor.dtype, tuple(found))


def names_of(inputs: Iterable[ValueInfo]) -> dict[str, str]:
    """What the file calls the sizes of inputs, by the names of their symbols."""
    found: dict[str, str] = {}
    for info in inputs:
        for axis, name in enumerate(info.shape):
            if isinstance(name, str):
                # A name that means nothing, or that has two meanings, is a symbol of the axis.
                found[name] = found[f"{info.name}.{axis}"] = name
    return found


def _written_out(size: Dim, names: Mapping[str, str]) -> str | None:
    """A size in the file's names of others; None if something else is in it."""
    symbols = sizes.leaves_of(size)
    if not all(atom.name in names for atom in symbols):
        return None  # only a run knows it
    if sizes.as_atom(size) is None and not all(names[a.name].isidentifier() for a in symbols):
        return None
    renamed = substitute(size, {a: sizes.symbol(names[a.name]) for a in symbols})
    return None if isinstance(renamed, int) else _bare(repr(renamed))


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

    Nodes that they do not need are removed.

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
    # At every level: what is not asked for may wait for what is.
    remove_dead(graph)


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
