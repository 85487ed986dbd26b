"""What a model is fed while it is tuned, and what its graph says about what may be tried."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, NoSuchFile, message
from sardonyx.ir.constant import Array
from sardonyx.ir.graph import Graph
from sardonyx.ir.value import Value
from sardonyx.loader.load import load
from sardonyx.loader.messages import read_tensor
from sardonyx.tools.feeds import random_feeds
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
    """

    has_convolutions: bool = True
    has_products: bool = True
    has_branches: bool = True
    batched: tuple[str, ...] = ()


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
    return _feeds(graph, options), _facts(graph)


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
    names = [value.name for value in graph.inputs]
    sizes = {repr(d) for v in graph.inputs for d in v.shape or () if not isinstance(d, int)}
    for name in options.dims:
        if name not in sizes:
            what = f"No input has a dimension {name!r}"
            raise InvalidArgument(message("--dim", what, do=nearest(name, sizes)))
    if not options.inputs:
        return random_feeds([_node(v) for v in graph.inputs], options.dims, options.seed)
    path = Path(options.inputs)
    found = _folder(path, names) if path.is_dir() else _file(path)
    missing = [name for name in names if name not in found]
    if missing:
        raise InvalidArgument(message(str(path), f"There is nothing for {', '.join(missing)}"))
    return {name: found[name] for name in names}


def _node(value: Value) -> _Node:
    kind = f"tensor({value.dtype})" if value.kind == "tensor" else value.kind
    shape = tuple(d if isinstance(d, int) else repr(d) for d in value.shape or ())
    return _Node(value.name, kind, shape)


def _folder(folder: Path, names: list[str]) -> Mapping[str, Array]:
    """Tensors input_N.pb of a folder, or of the first test_data_set_N in it."""
    sets = sorted(folder.glob("test_data_set_*"))
    folder = folder if any(folder.glob("input_*.pb")) or not sets else sets[0]
    found = {}
    for path in sorted(folder.glob("input_*.pb")):
        name, array = read_tensor(path)
        number = path.stem.removeprefix("input_")
        if name not in names and number.isdigit() and int(number) < len(names):
            name = names[int(number)]
        found[name] = array
    return found


def _file(path: Path) -> Mapping[str, Array]:
    if not path.is_file():
        raise NoSuchFile(message(str(path), "There is no such file of inputs"))
    try:
        held = np.load(path)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile):
        held = None
    if not isinstance(held, np.lib.npyio.NpzFile):
        raise InvalidArgument(message(str(path), "It is no .npz file of arrays by name"))
    with held:
        return dict(held)
