"""What a model is fed while it is tuned, and what its graph says about what may be tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sardonyx.ir.constant import Array
from sardonyx.ir.graph import Graph
from sardonyx.ir.value import Value
from sardonyx.loader.load import load
from sardonyx.tools.feeds import random_feeds
from sardonyx.tools.made_up import check_sizes, input_sizes
from sardonyx.tools.perf.data import data_folders, read_arrays, read_data_set
from sardonyx.tools.tune.options import TuneOptions

#: Operators whose products of float32 numbers may be rounded to bfloat16 before.
_PRODUCTS = {"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "LSTM", "GRU", "RNN"}


@dataclass(frozen=True)
class Facts:
    """What matters of a model's graph.

    Attributes:
        has_convolutions: Whether there are any.
        has_products: Whether there are any that lower precision may matter to.
        has_branches: Whether a value has several readers, so that branches may run at once.
        batched: Inputs that may be fed several times in one run, along their first axis.
        sizes: A line about the sizes of made-up inputs that nobody gave; "" for none.
    """

    has_convolutions: bool = True
    has_products: bool = True
    has_branches: bool = True
    batched: tuple[str, ...] = ()
    sizes: str = ""


@dataclass(frozen=True)
class _Node:
    """An input, as sessions describe it."""

    name: str
    type: str
    shape: tuple[Any, ...]


def examine(model: str, options: TuneOptions) -> tuple[dict[str, Array], Facts]:
    """The feeds of a model, and what may matter to it.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph: The model or its inputs cannot be read.
        InvalidArgument: The inputs do not fit it.
    """
    graph = load(model)
    told = "" if options.inputs else input_sizes(map(_node, graph.inputs), options.dims).told()
    return _feeds(graph, options), replace(_facts(graph), sizes=told)


def _facts(graph: Graph) -> Facts:
    kinds = {node.op_type for node in graph.walk()}
    free = [v for v in graph.inputs if v.shape and not isinstance(v.shape[0], int)]
    first = repr(free[0].shape[0]) if free and free[0].shape else ""
    return Facts(
        has_convolutions="Conv" in kinds,
        has_products=bool(kinds & _PRODUCTS),
        has_branches=any(len(v.uses) > 1 for node in graph.nodes for v in node.outputs),
        batched=tuple(v.name for v in free if v.shape and repr(v.shape[0]) == first),
    )


def _feeds(graph: Graph, options: TuneOptions) -> dict[str, Array]:
    nodes = [_node(v) for v in graph.inputs]
    check_sizes(nodes, options.dims)
    if not options.inputs:
        return random_feeds(nodes, options.dims, options.seed)
    path, names = Path(options.inputs), [node.name for node in nodes]
    if not path.is_dir():
        return read_arrays(path, names)
    outputs = [value.name for value in graph.outputs]
    return read_data_set(next(iter(data_folders(path)), path), names, outputs).feeds


def _node(value: Value) -> _Node:
    kind = f"tensor({value.dtype})" if value.kind == "tensor" else value.kind
    shape = tuple(d if isinstance(d, int) else repr(d) for d in value.shape or ())
    return _Node(value.name, kind, shape)
