"""What a model is fed while it is measured, and what it must give then."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, NoSuchFile, message
from sardonyx.ir.constant import Array
from sardonyx.loader import arrays
from sardonyx.loader.load import decode_model
from sardonyx.loader.messages import read_tensor
from sardonyx.loader.source import FileSource
from sardonyx.tools.feeds import random_feeds
from sardonyx.tools.made_up import Sizes, input_sizes
from sardonyx.tools.perf.settings import PerfSettings

#: Results of types with few digits may be farther off.
_NARROW = {"float16": 1e-2, "bfloat16": 3e-2}

#: The name of a data set that comes from no file.
MADE_UP = "made up"


@dataclass(frozen=True)
class DataSet:
    """Feeds of one request, and what its outputs must be, as far as files say.

    Attributes:
        name: What reports call it.
        feeds: Arrays by input.
        expected: Arrays by output.
        sizes: What sizes the inputs were given, where they were made up.
    """

    name: str
    feeds: dict[str, Array]
    expected: Mapping[str, Array]
    sizes: Sizes = Sizes({}, {})


def data_sets(session: Any, model: str, settings: PerfSettings, sizes: FreeSizes) -> list[DataSet]:
    """What to feed: of files where there are any and nothing else is asked for, else made up.

    Raises:
        NoSuchFile: The folder or file that settings name is not there.
        InvalidArgument: Files are not readable, or do not fit the model.
    """
    names = [node.name for node in session.get_inputs()]
    if settings.inputs:
        return [DataSet(settings.inputs, read_arrays(Path(settings.inputs), names), {})]
    outputs = [node.name for node in session.get_outputs()]
    folder = Path(settings.data) if settings.data else Path(model).absolute().parent
    found = [] if settings.generate else data_folders(folder)
    if not found and settings.data:
        raise NoSuchFile(message(settings.data, "It has no folder test_data_set_N"))
    if found:
        return [read_data_set(path, names, outputs) for path in found]
    both = {**sizes.named, **sizes.placed}
    nodes = session.get_inputs()
    chosen = input_sizes(nodes, both)
    return [DataSet(MADE_UP, random_feeds(nodes, both, settings.seed), {}, chosen)]


def data_folders(folder: Path) -> list[Path]:
    """The folders test_data_set_N that have inputs, in the order of their numbers."""
    found = [
        (int(match[1]), path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := re.fullmatch(r"test_data_set_(\d+)", path.name)) and any(path.glob("*.pb"))
    ]
    return [path for _, path in sorted(found)]


def read_data_set(folder: Path, inputs: Sequence[str], outputs: Sequence[str]) -> DataSet:
    """The tensors of a folder of files input_N.pb and output_N.pb.

    Raises:
        InvalidArgument: A file is no tensor, or the folder does not fit the model.
    """
    feeds = _side(folder, "input", inputs)
    missing = [name for name in inputs if name not in feeds]
    if missing:
        raise InvalidArgument(message(str(folder), f"There is nothing for {', '.join(missing)}"))
    return DataSet(folder.name, feeds, _side(folder, "output", outputs))


def _side(folder: Path, side: str, names: Sequence[str]) -> dict[str, Array]:
    """Tensors by name; one without a name is the input or output of its file's number."""
    found = {}
    for path in sorted(folder.glob(f"{side}_*.pb")):
        name, array = read_tensor(path)
        number = path.stem.removeprefix(f"{side}_")
        if not name and number.isdecimal() and int(number) < len(names):
            name = names[int(number)]
        if name not in names:
            what = f"The model has no {side} {name!r}"
            raise InvalidArgument(message(str(path), what, do=nearest(name, names)))
        found[name] = array
    return found


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """The arrays of a file .npz that have these names.

    Raises:
        NoSuchFile: There is no such file.
        InvalidArgument: It is none of arrays by name, or has not all of them.
    """
    held = arrays.read_arrays(path)
    if not isinstance(held, dict):
        raise InvalidArgument(message(str(path), "It holds no arrays by name"))
    missing = [name for name in names if name not in held]
    if missing:
        raise InvalidArgument(message(str(path), f"There is nothing for {', '.join(missing)}"))
    return {name: held[name] for name in names}


def difference(got: Any, want: Array, tolerance: float) -> str:
    """How an output differs from what it must be; "" if it does not.

    Numbers may be off by the tolerance times the size of the expected one, and by a hundredth of it
    times the largest one.
    """
    have = np.asarray(got)
    if have.shape != want.shape:
        return f"its shape is {list(have.shape)}, expected {list(want.shape)}"
    if have.dtype != want.dtype:
        return f"its type is {have.dtype}, expected {want.dtype}"
    if want.dtype.kind not in "fcV":
        wrong = int((have != want).sum())
        return f"{wrong} of {want.size} elements differ" if wrong else ""
    tolerance = max(tolerance, _NARROW.get(want.dtype.name, 0.0))
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = have.astype(wide), want.astype(wide)
    finite = np.abs(b[np.isfinite(b)])
    allowed = tolerance * (np.abs(b) + 1e-2 * float(finite.max(initial=0)))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        off = ~same & ~(np.abs(a - b) <= allowed)
        worst = np.abs(a - b)[off]
    if not off.any():
        return ""
    return f"{int(off.sum())} of {want.size} elements are off, by up to {float(worst.max()):.3g}"


@dataclass(frozen=True)
class FreeSizes:
    """Sizes that settings give: by the names of dimensions, and by INPUT.AXIS."""

    named: Mapping[str, int]
    placed: Mapping[str, int]


def free_sizes(model: str, settings: PerfSettings) -> FreeSizes:
    """Sizes of dimensions that settings give, by name or by what they denote.

    Raises:
        InvalidArgument: No input has such a dimension, or one of that denotation has no name.
    """
    if not settings.free_dims and not settings.free_denotations:
        return FreeSizes({}, {})
    graph = decode_model(FileSource(model)).graph
    dims: list[tuple[str, Any]] = []
    for value in graph.input if graph is not None else ():
        tensor = value.type.tensor_type if value.type is not None else None
        shape = tensor.shape.dim if tensor is not None and tensor.shape is not None else ()
        dims += [(f"{value.name}.{axis}", dim) for axis, dim in enumerate(shape)]
    names = {dim.dim_param for _, dim in dims} - {""}
    places = {place for place, dim in dims if dim.dim_param or not dim.has("dim_value")}
    for name in settings.free_dims:
        if name not in names | places:
            what = f"No input has a dimension {name!r}"
            raise InvalidArgument(message("-f", what, do=nearest(name, names | places)))
    named = {name: size for name, size in settings.free_dims.items() if name in names}
    for denotation, size in settings.free_denotations.items():
        denoted = {dim.dim_param for _, dim in dims if dim.denotation == denotation}
        if not denoted or "" in denoted:
            what = f"No named dimension denotes {denotation!r}"
            raise InvalidArgument(message("-F", what, do="Use -f with the dimension's name"))
        named.update(dict.fromkeys(denoted, size))
    placed = {name: size for name, size in settings.free_dims.items() if name not in names}
    return FreeSizes(named, placed)
