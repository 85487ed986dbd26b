"""The engine's logger: standard `logging`; warnings go to stderr unless they are handled."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

from sardonyx.base import knobs
from sardonyx.base.errors import InvalidArgument
from sardonyx.base.printable import printable

#: Root of the engine's loggers. Applications attach handlers to it as to any other; while there are
#: none, Python itself writes warnings to stderr, so that no slower plan goes unnoticed.
logger = logging.getLogger("sardonyx")


#: Least level, and the name of a session, while that session is made.
_scope: ContextVar[tuple[int, str]] = ContextVar("sardonyx log scope", default=(0, ""))


def _in_scope(record: logging.LogRecord) -> bool:
    least, record.logid = _scope.get()
    if record.levelno < least:
        return False
    text = record.getMessage()
    clean = printable(text)
    if clean != text:
        record.msg, record.args = clean, ()
    if record.exc_info:
        import traceback  # only for errors

        trace = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        record.exc_text = printable(trace, has_lines=True)
    return True


logger.addFilter(_in_scope)


def get_logger(part: str) -> logging.Logger:
    """The logger of one part of the engine, such as `cache`. Records are one `printable` line."""
    found = logger.getChild(part)
    found.addFilter(_in_scope)
    return found


_load = get_logger("load")


def remark(text: str) -> None:
    """Warn of something in a model's file, with the logger of loading."""
    _load.warning("%s", text)


@contextmanager
def scope(least_level: int, logid: str) -> Iterator[None]:
    """Drop what is below a level, and give records the attribute `logid`, inside a `with` block."""
    token = _scope.set((least_level, logid))
    try:
        yield
    finally:
        _scope.reset(token)


def is_dropped(level: int) -> bool:
    """Whether the session that is being made drops records of this level."""
    return level < _scope.get()[0]


class _LastHandler(logging.StreamHandler[TextIO]):
    """Writes to stderr what no handler of the application's takes, whenever that one came."""

    def emit(self, record: logging.LogRecord) -> None:
        others = len(logger.handlers) > 1 or logging.getLogger().handlers
        if not others:
            self.stream = sys.stderr
            super().emit(record)


def set_up() -> None:
    """Apply SARDONYX_LOG: set the level and, when nothing else would show it, write to stderr.

    Raises:
        InvalidArgument: The variable holds no level.
    """
    level = getattr(logging, str(knobs.get("SARDONYX_LOG")).upper())
    logger.setLevel(level)
    if level < logging.WARNING and not any(type(h) is _LastHandler for h in logger.handlers):
        handler = _LastHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)


def set_up_from_environment() -> None:
    """`set_up` if the variable is set; a bad value is a warning, for an import must not fail."""
    if os.environ.get("SARDONYX_LOG"):
        try:
            set_up()
        except InvalidArgument as error:
            logger.warning("%s", error)
