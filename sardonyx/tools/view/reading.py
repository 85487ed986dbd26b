"""Events of a profile: from a file in Chrome's trace format, or from a `Profile`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.profiling.profile import Profile

Event = dict[str, Any]
#: Characters of a line that is looked at.
_LONGEST = 1 << 24


def is_profile(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as JSON does; no model does.

    Raises:
        InvalidArgument: It is a folder.
        OSError: It cannot be read.
    """
    if os.path.isdir(path):
        raise InvalidArgument(message(os.fspath(path), "This is not a regular file"))
    with open(path, "rb") as file:
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
        OSError: It cannot be read.
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


def _has_lines(path: str | os.PathLike[str]) -> bool:
    """Whether a line has the bracket alone, and the next one an event."""
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        first, second = file.readline(_LONGEST), file.readline(_LONGEST)
    return first.strip() == "[" and second.rstrip().endswith(("}", "},"))


def _of_lines(path: str | os.PathLike[str]) -> Iterator[Any]:
    name = os.fspath(path)
    broken = 0
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        file.readline()
        for number, line in enumerate(file, 2):
            text = line.strip().removesuffix(",")
            if broken:
                what = f"Line {broken} is no event, and others follow"
                raise InvalidArgument(message(name, what))
            if text == "]":
                return
            if not text:
                continue
            try:
                yield json.loads(text.removesuffix("]") if text.endswith("}]") else text)
            except (ValueError, RecursionError):
                broken = number


def _of_whole(path: str | os.PathLike[str]) -> list[Any]:
    name = os.fspath(path)
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        text = file.read()
    try:
        found = json.loads(text)
    except RecursionError:
        raise InvalidArgument(message(name, "It is nested too deeply for a profile")) from None
    except ValueError as error:
        what = "It is neither a profile nor a model"
        raise InvalidArgument(message(name, what, got=str(error))) from None
    if isinstance(found, dict):
        found = found.get("traceEvents")
    if not isinstance(found, list):
        raise InvalidArgument(message(name, "It is JSON, but no profile", expected="a list"))
    return found
