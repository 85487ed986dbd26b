"""A model as its reader gets it: an open source, and the files with data around it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.loader.external import ExternalFiles
from sardonyx.loader.source import FileSource, Source


def files_beside(
    source: Any,
    folder: str | os.PathLike[str] | None,
    data_files: Mapping[str, bytes] | None = None,
) -> ExternalFiles:
    """The files with external data of a model.

    Args:
        source: The model: a path, or what has none.
        folder: Where the files are; None if nobody knows.
        data_files: Contents in place of files, by their names in the model.
    """
    external = ExternalFiles(None if folder is None else os.fspath(folder), data_files or {})
    if isinstance(source, str | os.PathLike):
        external.real_folder = os.path.dirname(os.path.realpath(os.fspath(source)))
    return external


def open_source(source: Any) -> tuple[Source, str | None]:
    """The bytes of a model, and the folder that it is in, if it is in one.

    Raises:
        NoSuchFile: There is no such file.
        InvalidArgument: The source is no path, bytes or `ModelProto`.
    """
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        return FileSource(path), os.path.dirname(os.path.abspath(path))
    if isinstance(source, bytes | bytearray | memoryview):
        try:
            return Source(source if isinstance(source, bytes) else memoryview(source)), None
        except TypeError:
            raise InvalidArgument(message("load", "The memoryview is not contiguous")) from None
    serialize = getattr(source, "SerializeToString", None)
    if serialize is not None:
        try:
            data = serialize()
        except Exception as error:
            raise InvalidArgument(
                message(
                    "load",
                    f"The model cannot be serialized: {error}",
                    do="Save it with external data and give its path",
                )
            ) from error
        return Source(data), None
    raise InvalidArgument(
        message(
            "load",
            "A model cannot be loaded from this",
            expected="a path, bytes or a ModelProto",
            got=type(source).__name__,
        )
    )
