"""What a framework has to offer so that its models can be converted and checked."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np

from sardonyx.base.errors import InvalidArgument, installing, message
from sardonyx.base.files import open_file

Array = np.ndarray[Any, Any]
#: Sizes of inputs by name, and the names of those that may change: axis -> name.
FreeAxes = Mapping[str, Mapping[int, str]]


@dataclass(slots=True)
class Wishes:
    """How a model should be converted.

    Attributes:
        inputs: What the model is converted and checked with, in the order of its arguments.
        opset: Version of ONNX's operators; None for what the exporter does by itself.
        free: By input, the axes that may have other sizes later, with names for them.
    """

    inputs: dict[str, Array]
    opset: int | None = None
    free: dict[str, dict[int, str]] = field(default_factory=dict)


class ConvertSource(Protocol):
    """A model of some framework."""

    framework: str

    def example(self, random: np.random.Generator) -> dict[str, Array]:
        """Inputs that the model itself says enough about to make some.

        Raises:
            InvalidArgument: It does not say what it takes.
        """

    def export(self, target: str, wishes: Wishes) -> None:
        """Write the model as an ONNX file."""

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """What the framework itself computes, in the order of the file's outputs."""


def package(name: str, extra: str, where: str) -> Any:
    """A package that only some conversions need.

    Raises:
        InvalidArgument: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        what = f"The package {name.partition('.')[0]} is needed and cannot be imported: {error}"
        do = installing(extra)
        raise InvalidArgument(message(where, what, do=do)) from None


def attribute(path: str) -> Any:
    """What `package.module:name` stands for; modules are also looked for in the current folder.

    Raises:
        InvalidArgument: There is no such module or name, or importing it fails.
    """
    name, _, rest = path.partition(":")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(name)
        for part in rest.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        what = f"The model cannot be found: {error}"
        expected = "package.module:name of a model, or of a function that gives one"
        raise InvalidArgument(message(path, what, expected=expected)) from None
    return found


def unpickled(path: str, trusted: bool) -> Any:
    """What a pickle or joblib file holds. Reading one can run any code, so it has to be trusted.

    Raises:
        InvalidArgument: It is not trusted.
    """
    if not trusted:
        what = "Reading a pickle runs whatever code is in it"
        raise InvalidArgument(message(path, what, do="Add --trust-pickle if you trust the file"))
    if path.endswith(".joblib"):
        return package("joblib", "sklearn", path).load(path)
    import pickle

    with open_file(path) as file:
        return pickle.load(io.BufferedReader(cast(io.RawIOBase, file)))  # noqa: S301 - the caller trusts it


def rows(random: np.random.Generator, features: int, count: int = 100) -> Array:
    """Rows of normally distributed numbers for models of tables."""
    return random.standard_normal((count, features)).astype(np.float32)


def flat(value: Any) -> list[Any]:
    """The leaves of nested lists, tuples and mappings, in order; None has none."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [leaf for part in value.values() for leaf in flat(part)]
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [leaf for part in value for leaf in flat(part)]
    return [value]
