"""LoRA adapters: tensors that take the place of a model's, for the runs that name them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sardonyx.api.ortvalue import OrtValue
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import InvalidArgument, message

_LARGEST = 2**31


def _adapter_file() -> Any:
    """The reader and writer of files: the loader is not imported with the package."""
    from sardonyx.loader import adapter_file

    return adapter_file


class AdapterFormat:
    """The contents of an adapter file, to be read or written.

    Attributes:
        format_version: Of the file's format.
        adapter_version: Of the adapter, as its maker counts.
        model_version: Of the model that it was made for.
        parameters: `OrtValue`s by the name of the input that they are fed to.
    """

    def __init__(self) -> None:
        self.format_version = int(_adapter_file().FORMAT_VERSION)
        self._versions = [0, 0]
        self._parameters: dict[str, OrtValue] = {}

    @staticmethod
    @names_misfits
    def read_adapter(file_path: str | os.PathLike[str]) -> AdapterFormat:
        """The contents of a file; values share its memory, and are read-only.

        Raises:
            NoSuchFile: It is not there.
            InvalidArgument: It is no adapter, or is damaged.
            NotImplemented: It has elements of a type that is not supported.
        """
        read = _adapter_file().read_adapter(_path(file_path))
        made = AdapterFormat()
        made.format_version = read.format_version
        made._versions = [read.adapter_version, read.model_version]
        made._parameters = {name: OrtValue(array) for name, array in read.parameters.items()}
        return made

    def export_adapter(self, file_path: str | os.PathLike[str]) -> None:
        """Write a file, which appears when it is complete.

        Raises:
            InvalidArgument: A parameter has elements that the format does not have.
        """
        files = _adapter_file()
        arrays = {name: value.numpy() for name, value in self._parameters.items()}
        adapter = files.Adapter(arrays, *self._versions, self.format_version)
        files.write_adapter(_path(file_path), adapter)

    @property
    def adapter_version(self) -> int:
        """Of the adapter, as its maker counts."""
        return self._versions[0]

    @adapter_version.setter
    def adapter_version(self, version: int) -> None:
        self._versions[0] = _version(version)

    @property
    def model_version(self) -> int:
        """Of the model that it was made for."""
        return self._versions[1]

    @model_version.setter
    def model_version(self, version: int) -> None:
        self._versions[1] = _version(version)

    @property
    def parameters(self) -> dict[str, OrtValue]:
        """Values by the name of the input that they are fed to."""
        return dict(self._parameters)

    @parameters.setter
    def parameters(self, values: Mapping[str, OrtValue]) -> None:
        given = _adapter_file().as_mapping(values)
        for name, value in given.items():
            if not isinstance(value, OrtValue) or not value.is_tensor():
                got = type(value).__name__
                raise InvalidArgument(
                    message(f"adapter parameter {name}", "It is no OrtValue of a tensor", got=got)
                )
        self._parameters = dict(given)

    def get_format_version(self) -> int:
        """Of the file's format."""
        return self.format_version

    def set_adapter_version(self, adapter_version: int) -> None:
        """Set `adapter_version`; raises InvalidArgument if it is no number of 32 bits."""
        self.adapter_version = adapter_version

    def get_adapter_version(self) -> int:
        """Of the adapter, as its maker counts."""
        return self.adapter_version

    def set_model_version(self, model_version: int) -> None:
        """Set `model_version`; raises InvalidArgument if it is no number of 32 bits."""
        self.model_version = model_version

    def get_model_version(self) -> int:
        """Of the model that it was made for."""
        return self.model_version

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        """Set `parameters`; raises InvalidArgument if they are no tensors by name."""
        self.parameters = dict(_adapter_file().as_mapping(params))

    def get_parameters(self) -> dict[str, OrtValue]:
        """Values by the name of the input that they are fed to."""
        return self.parameters


class LoraAdapter:
    """An adapter for `RunOptions.add_active_adapter`; any number of runs may share it."""

    def __init__(self) -> None:
        self._values: dict[str, OrtValue] | None = None

    @names_misfits
    def Load(self, adapter_path: str | os.PathLike[str]) -> None:  # noqa: N802 - onnxruntime's name
        """Read a file. Raises as `AdapterFormat.read_adapter` does."""
        self._values = AdapterFormat.read_adapter(adapter_path).parameters

    def feeds(self) -> dict[str, OrtValue]:
        """Its values by the name of the input that they are fed to.

        Raises:
            InvalidArgument: Nothing was loaded.
        """
        if self._values is None:
            raise InvalidArgument(
                message("LoraAdapter", "Nothing was loaded", do="Call Load with a file's path")
            )
        return self._values


def _path(path: Any) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidArgument(message("adapter", "This is no path", got=type(path).__name__))
    return os.fsdecode(path)


def _version(version: Any) -> int:
    if not isinstance(version, int) or not -_LARGEST <= version < _LARGEST:
        what = "The version is no integer of 32 bits"
        raise InvalidArgument(message("adapter", what, got=repr(version)))
    return version
