"""The part of `SessionOptions` about the model: sizes of its dimensions, and its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.api.initializers import check_counts, contents_of_files, initializer
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.log import get_logger

_logger = get_logger("options")


class ModelOptions:
    """What a session takes in place of what the model's file has."""

    _sizes: dict[str, int]
    _denoted: dict[str, int]
    _initializers: dict[str, np.ndarray[Any, Any]]
    _data_files: dict[str, bytes]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Give the dimension that inputs call `name` a fixed size; the first of several counts."""
        _add_size(self._sizes, name, size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Give dimensions of inputs that stand for `denotation` (`DATA_BATCH`) a fixed size.

        Capital and small letters are one; the first of several sizes counts. A session is not made
        if such a dimension has another size, or is given another by its name.
        """
        _add_size(self._denoted, denotation, size)

    @property
    def denoted_sizes(self) -> dict[str, int]:
        """Sizes by what dimensions stand for."""
        return dict(self._denoted)

    @property
    def free_dimension_overrides(self) -> dict[str, int]:
        """Sizes by dimension name."""
        return dict(self._sizes)

    def add_initializer(self, name: str, ort_value: Any) -> None:
        """Use this tensor, an `OrtValue` or an array, in place of the model's initializer `name`.

        It is copied when a session is made.
        """
        _check_text("add_initializer", name)
        self._initializers[name] = initializer("add_initializer", name, ort_value)

    def add_external_initializers(self, names: Sequence[str], ort_values: Sequence[Any]) -> None:
        """Use these tensors in place of initializers whose data lie in other files.

        The files need not exist. Types and shapes must be those that the model declares.
        """
        where = "add_external_initializers"
        check_counts(where, names, ort_values)
        for name, value in zip(names, ort_values, strict=True):
            _check_text(where, name)
            self._initializers[name] = initializer(where, name, value)

    @property
    def initializers(self) -> dict[str, Any]:
        """Arrays in place of the model's initializers, by name."""
        return dict(self._initializers)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Read the model's external data from these buffers instead of files.

        Files that are not among them are looked for beside the model. `bytes` are kept as they are;
        other buffers are copied now.

        Args:
            names: Of files, as the model writes them.
            buffers: What is in them: `bytes`, or anything contiguous with the buffer protocol.
            lengths: How many bytes of each buffer are the file's.

        Raises:
            InvalidArgument: A file comes twice, what is given is no contents, or is shorter.
        """
        self._data_files.update(contents_of_files(names, buffers, lengths, self._data_files))

    @property
    def data_files(self) -> dict[str, bytes]:
        """Contents of files with weights, by the names that the model has for them."""
        return dict(self._data_files)


def _add_size(sizes: dict[str, int], key: str, size: int) -> None:
    _check_text("free dimension", key)
    known = sizes.setdefault(key, _size(size))
    if known != size:
        _logger.warning("%r has the size %d already: %d is ignored", key, known, size)


def _check_text(where: str, name: Any) -> None:
    if not isinstance(name, str):
        raise InvalidArgument(
            message(where, "A name is no text", expected="str", got=type(name).__name__)
        )


def _size(value: Any) -> int:
    if not isinstance(value, (int, np.integer)) or value < 0:
        raise InvalidArgument(message("free dimension", "The size is no size", got=repr(value)))
    return int(value)
