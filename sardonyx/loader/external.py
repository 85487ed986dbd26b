"""Tensor data in other files: where they may be, and that they fit."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping

from sardonyx.base.errors import Fail, InvalidArgument, InvalidGraph, NoSuchFile, message
from sardonyx.base.files import Identity
from sardonyx.loader.source import FileSource, Source
from sardonyx.loader.wire import WireRecord


class UnknownFolder(InvalidGraph):
    """Data lie in a file, and nobody says where that is."""


class ExternalFiles:
    """The other files of one model, each opened once.

    Args:
        folder: Where they lie; None if nobody knows.
        in_memory: Contents in place of files, by the locations that the model names.
    """

    def __init__(self, folder: str | None, in_memory: Mapping[str, bytes] | None = None) -> None:
        self._folder = folder
        #: Where the model lies itself, if it was given as a link.
        self.real_folder: str | None = None
        self._files: dict[str, FileSource] = {}
        self._in_memory = {
            _plain(name): Source(data, name) for name, data in (in_memory or {}).items()
        }

    @property
    def identities(self) -> list[tuple[str, Identity]]:
        """Every file that was opened, and in which state."""
        return [(os.path.abspath(path), file.identity) for path, file in self._files.items()]

    def locate(self, tensor: WireRecord, where: str) -> tuple[Source, int, int | None]:
        """File, offset and, if it is given, size of a tensor's data.

        Raises:
            InvalidGraph: The location leads out of the model's folder, or a number is none.
            UnknownFolder: The model has no folder, and the file is not in memory.
            NoSuchFile: There is no such file.
        """
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        file = self._in_memory.get(_plain(location))
        if file is None:
            file = self._open(self._path(location, where), where)
        offset = _number(entries.get("offset", "0"), "offset", where)
        size = _number(entries["length"], "length", where) if "length" in entries else None
        return file, offset, size

    def _path(self, location: str, where: str) -> str:
        parts = re.split(r"[/\\]", location)
        if (
            not location
            or "\0" in location
            or ".." in parts
            or not parts[0]
            or os.path.isabs(location)
            or re.match("[A-Za-z]:", location)
        ):
            raise InvalidGraph(
                message(
                    where,
                    "The location of its data is not allowed",
                    expected="a path relative to the model's folder, without `..`",
                    got=repr(location),
                )
            )
        if self._folder is None:
            raise UnknownFolder(
                message(
                    where,
                    f"Its data is in the file {location!r}, but the model was given without a path",
                    do="Load the model by its path, name its folder, or give the file's contents",
                )
            )
        path = os.path.join(self._folder, location)
        # Programs on Windows write their own separator.
        path = path if os.path.exists(path) else os.path.join(self._folder, *parts)
        self._check_root(self._folder, path, where)
        return path

    def _check_root(self, folder: str, path: str, where: str) -> None:
        """Links may lead to files of the model's folder, and beside the file a link to it means."""
        roots = [os.path.realpath(folder), *([self.real_folder] if self.real_folder else [])]
        found = os.path.realpath(path)
        if not any(os.path.commonpath([root, found]) == root for root in roots):
            raise InvalidGraph(
                message(
                    where,
                    "External data path validation failed: a link leads out of the model's folder",
                    expected=f"a file below {' or '.join(roots)}",
                    got=found,
                    do="Name the folder of the data, or load the model from there",
                )
            )

    def _open(self, path: str, where: str) -> FileSource:
        if path not in self._files:
            try:
                self._files[path] = FileSource(path)
            except NoSuchFile:
                what = f"There is no such file, in which {where} lies"
                do = (
                    "Put it beside the model, or give weights by "
                    "SessionOptions.add_external_initializers"
                )
                raise NoSuchFile(message(path, what, do=do)) from None
            except (InvalidArgument, Fail) as error:
                raise InvalidGraph(message(where, f"Its data cannot be read: {error}")) from None
        return self._files[path]

    @staticmethod
    def check_inside(file: Source, offset: int, size: int, where: str) -> None:
        """Refuse data that is not wholly inside its file.

        Raises:
            InvalidGraph: The file is too short.
        """
        if offset + size > file.size:
            raise InvalidGraph(
                message(
                    where,
                    f"Its data ends after the end of {file.name}",
                    expected=f"{offset} + {size} bytes",
                    got=str(file.size),
                )
            )


def _plain(location: str) -> str:
    """One text for the ways to write a path."""
    return posixpath.normpath(location.replace("\\", "/"))


def _number(text: str, key: str, where: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise InvalidGraph(
            message(where, f"The {key} of its data is not a number", got=repr(text[:40]))
        )
    return int(text)
