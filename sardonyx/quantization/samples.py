"""Feeds from files: what calibration and accuracy reports run a model on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sardonyx.base.errors import InvalidArgument, NoSuchFile, message
from sardonyx.ir.constant import Array
from sardonyx.loader.arrays import read_arrays
from sardonyx.loader.messages import read_tensor

Feeds = Mapping[str, Array]


def read_samples(path: Path, inputs: Sequence[str]) -> list[Feeds]:
    """Feeds from a file or a folder, in the order of names.

    Args:
        path: An .npz file of arrays by input name; or a folder of such files, of .npy files (where
            the model has one input), or of folders with input_0.pb, input_1.pb and so on, as ONNX's
            test data has them.
        inputs: Names of the model's inputs.

    Raises:
        NoSuchFile: There is nothing there.
        InvalidArgument: A file is not readable, or does not fit the model.
    """
    if not path.exists():
        raise NoSuchFile(message(str(path), "There is no such file or folder of sample inputs"))
    if not path.is_dir():
        return [_from_file(path, inputs)]
    found = [_from_file(p, inputs) for p in sorted(path.glob("*.np[yz]"))]
    folders = [path, *sorted(p for p in path.iterdir() if p.is_dir())]
    found.extend(_from_messages(p, inputs) for p in folders if any(p.glob("input_*.pb")))
    if not found:
        what = "The folder holds no sample inputs"
        expected = ".npz files, .npy files, or folders with input_0.pb"
        raise InvalidArgument(message(str(path), what, expected=expected))
    return found


def _from_file(path: Path, inputs: Sequence[str]) -> Feeds:
    held = read_arrays(path)
    if isinstance(held, np.ndarray):
        if len(inputs) != 1:
            what = f"It holds one array, and the model has {len(inputs)} inputs"
            raise InvalidArgument(message(str(path), what, do="Use .npz files"))
        return {inputs[0]: held}
    return _checked(path, held, inputs)


def _from_messages(folder: Path, inputs: Sequence[str]) -> Feeds:
    """Arrays of input_0.pb and so on; one without a name is the input of that number."""
    arrays: dict[str, Array] = {}
    for path in folder.glob("input_*.pb"):
        number = path.stem.removeprefix("input_")
        given, array = read_tensor(path)
        is_number = number.isdecimal() and int(number) < len(inputs)
        name = given or (inputs[int(number)] if is_number else number)
        arrays[name] = array
    return _checked(folder, arrays, inputs)


def _checked(path: Path, arrays: dict[str, Array], inputs: Sequence[str]) -> Feeds:
    missing = [name for name in inputs if name not in arrays]
    if missing:
        what = f"It has no array for the input {missing[0]!r}"
        expected = ", ".join(inputs)
        raise InvalidArgument(
            message(str(path), what, expected=expected, got=", ".join(arrays) or "none")
        )
    return {name: arrays[name] for name in inputs}
