"""The check that what a tool writes replaces nothing that it reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from sardonyx.base.errors import InvalidArgument, SardonyxError, message
from sardonyx.base.files import check_target
from sardonyx.loader.load import files_of

Path = str | os.PathLike[str]


def check_targets(source: Any, *targets: Path | None) -> None:
    """Refuse files to be written that a model consists of, or that cannot be written.

    Args:
        source: What is read: a model's path, with the files of its external data; a folder, with
            all that is in it; another file. What is no path is at no risk.
        targets: The files to be written; None for none.

    Raises:
        InvalidArgument: One is a file of the source, also by way of links, or it is no regular
            file, or has no folder that can be written to.
    """
    wanted = [os.fspath(target) for target in targets if target is not None]
    own = list(_files(source)) if isinstance(source, str | os.PathLike) else []
    for number, target in enumerate(wanted):
        for number_of_file, path in enumerate(own):
            if _is_same(path, target):
                held = "" if number_of_file == 0 else f": {path} has data of it"
                what = f"It would replace the model{held}"
                raise InvalidArgument(message(target, what, do="Give it a name of its own"))
        if any(os.path.abspath(target) == os.path.abspath(t) for t in wanted[:number]):
            raise InvalidArgument(message(target, "Two files to be written have this name"))
        check_target(target)
        folder = os.path.dirname(os.path.abspath(target))
        if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            what = f"It cannot be written: the folder {folder} is not there, or is write-protected"
            raise InvalidArgument(message(target, what))


def _files(source: Path) -> Iterator[str]:
    """The paths of the files that a source consists of."""
    path = os.fspath(source)
    if os.path.isdir(path):
        for folder, _, names in os.walk(path):
            yield from (os.path.join(folder, name) for name in names)
        return
    if not os.path.isfile(path):
        return  # what reads it says what is wrong with it
    yield path
    try:
        yield from files_of(path)
    except (SardonyxError, OSError):
        return  # it is no model: a file of another framework, or what the reader refuses


def _is_same(path: str, target: str) -> bool:
    if os.path.realpath(path) == os.path.realpath(target):
        return True
    try:
        return os.path.samefile(path, target)
    except OSError:
        return False
