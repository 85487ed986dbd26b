"""Events of a profile: from a file in Chrome's trace format, or from a `Profile`."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from typing import Any, TextIO, cast

from sardonyx.base.bounded_json import parse_json
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.files import open_file
from sardonyx.profiling.profile import Profile

Event = dict[str, Any]
#: Characters of a line that is looked at.
_LONGEST = 1 << 24
#: Characters of a trace that has no lines of events, and so is in memory as a whole.
_MOST = 1 << 30


def is_profile(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as JSON does; no model does.

    Raises:
        NoSuchFile, InvalidArgument, Fail: See `files.open_file`.
    """
    with open_file(path) as file:
        start = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
    return start[:1] in (b"[", b"{") and start[1:2] in b' \t\r\n"{]}'


def events_of(profile: Profile) -> Iterator[Event]:
    """What `Profile.save` would write."""
    from sardonyx.profiling.chrome import events

    return map(json.loads, events(profile))


def read_events(path: str | os.PathLike[str]) -> Iterator[Event]:
    """The complete events (`"ph": "X"`) of a trace.

    What engines write has an event in each line: such a file is never in memory as a whole, and may
    end early, as programs do that write it. Other traces (`{"traceEvents": [...]}`) are read, too.

    Raises:
        InvalidArgument: It is no trace, or there are no events in it.
        NoSuchFile, Fail: See `files.open_file`.
    """
    name = os.fspath(path)
    count = 0
    for event in _of_lines(path) if _has_lines(path) else _of_whole(path):
        if isinstance(event, dict) and event.get("ph", "X") == "X" and "cat" in event:
            count += 1
            yield event
    if not count:
        what = "There are no events in it"
        raise InvalidArgument(message(name, what, expected="what end_profiling() or save() wrote"))


def _opened(path: str | os.PathLike[str]) -> TextIO:
    """A file as text, in which what is no UTF-8 is replaced."""
    return io.TextIOWrapper(
        io.BufferedReader(cast(io.RawIOBase, open_file(path))), "utf-8-sig", "replace"
    )


def _has_lines(path: str | os.PathLike[str]) -> bool:
    """Whether a line has the bracket alone, and the next one an event."""
    with _opened(path) as file:
        first, second = file.readline(_LONGEST), file.readline(_LONGEST)
    return first.strip() == "[" and second.rstrip().endswith(("}", "},"))


def _of_lines(path: str | os.PathLike[str]) -> Iterator[Any]:
    name = os.fspath(path)
    broken = 0
    with _opened(path) as file:
        file.readline()
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST), ""), 2):
            text = line.strip().removesuffix(",")
            if broken:
                what = f"Line {broken} is no event, and others follow"
                raise InvalidArgument(message(name, what))
            if text == "]":
                return
            if not text:
                continue
            try:
                event = text.removesuffix("]") if text.endswith("}]") else text
                yield parse_json(event, name, is_strict=False)
            except InvalidArgument:
                broken = number


def _of_whole(path: str | os.PathLike[str]) -> list[Any]:
    name = os.fspath(path)
    with _opened(path) as file:
        text = file.read(_MOST)
    what = "It is neither a profile nor a model"
    found = parse_json(text, name, most=_MOST - 1, is_strict=False, otherwise=what)
    if isinstance(found, dict):
        found = found.get("traceEvents")
    if not isinstance(found, list):
        raise InvalidArgument(message(name, "It is JSON, but no profile", expected="a list"))
    return found
