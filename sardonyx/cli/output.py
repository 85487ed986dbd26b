"""What the command line prints. Nothing in it that came from a file reaches a terminal as it is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from sardonyx.base.printable import printable


def say(text: str = "", *, is_error: bool = False) -> None:
    """Print one line: newlines in it are of names, and become escapes as all that is no text."""
    print(printable(text), file=sys.stderr if is_error else sys.stdout)


def say_text(text: str) -> None:
    """Print a text of several lines, each of which is `printable` already."""
    print(printable(text, has_lines=True))


def draw(text: str) -> None:
    """Write what a terminal obeys, such as the end of a line that is written over, to stderr.

    The caller makes texts in it `printable`.
    """
    stream = sys.stderr
    stream = stream.stream if isinstance(stream, _Clean) else stream
    stream.write(text)
    stream.flush()


@contextmanager
def clean_streams() -> Iterator[None]:
    """Inside, whatever is written to stdout and stderr is `printable`, whoever writes it."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, _Clean(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Clean:
    """A stream of text that makes it `printable`; in all else it is the other one."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(printable(text, has_lines=True))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
