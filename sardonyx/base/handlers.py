"""What a handler of signals raises while a session is made reaches the caller as it is.

Python calls handlers between any two operations of the main thread, so also where an OSError or a
ValueError is expected and dealt with: the TimeoutError of an alarm is an OSError. While work is
`undisturbed`, whatever a handler raises travels as a `BaseException`, as KeyboardInterrupt does,
which nothing on the way takes for its own; where the work began it becomes again what it was.
"""

from __future__ import annotations

import signal
import sys
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # `signal` wraps it, at 1 us
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

_Made = TypeVar("_Made")
_Handler = Callable[[int, FrameType | None], Any]

_NUMBERS = sorted(map(int, signal.valid_signals()))


class _Raised(BaseException):
    """Carries what a handler raised."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Handlers:
    """The caller's handlers, with others in their place, until `restore`.

    Args:
        instead: What takes the place of a handler.
        with_ctrl_c: Whether Python's own for Ctrl-C is replaced, too, which raises no Exception.
    """

    def __init__(self, instead: Callable[[Any], _Handler], *, with_ctrl_c: bool) -> None:
        self._make, self._with_ctrl_c = instead, with_ctrl_c
        self._before: dict[int, _Handler] = {}
        self._instead: dict[int, _Handler] = {}

    def replace(self) -> None:
        """Put others in their place."""
        for number in _NUMBERS:
            handler = getsignal(number)
            if not callable(handler) or getattr(handler, "__module__", "") == _DOES_NOTHING:
                continue
            if handler is not signal.default_int_handler or self._with_ctrl_c:
                self._before[number], self._instead[number] = handler, self._make(handler)
                signal.signal(number, self._instead[number])

    def restore(self) -> None:
        """Put them back, but not where a handler has put another one meanwhile."""
        for number, instead in self._instead.items():
            if getsignal(number) is instead:
                signal.signal(number, self._before[number])


#: Has a handler for the signals of an event loop. To set it again would undo the `siginterrupt`
#: that was called for it.
_DOES_NOTHING = "asyncio.unix_events"


def _carrying(handler: Any) -> _Handler:
    def handle(number: int, frame: FrameType | None) -> Any:
        try:
            return handler(number, frame)
        except Exception as error:
            raise _Raised(error) from None

    return handle


class _State:
    is_active = False


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def undisturbed(make: Callable[[], _Made]) -> _Made:
    """What `make` gives; an exception of a handler of signals ends it, and comes out unchanged.

    So does any other BaseException, such as KeyboardInterrupt, where cleaning up after it failed.
    """
    if _State.is_active or not _is_main():
        return make()
    handlers = _Handlers(_carrying, with_ctrl_c=False)
    carried: BaseException
    known = sys.exc_info()[1]  # the caller may be dealing with one
    try:
        try:
            _State.is_active = True
            handlers.replace()
            return make()
        finally:
            _State.is_active = False
            handlers.restore()
    except _Raised as raised:
        carried = raised.error
    except Exception as error:
        found = _interruption(error, known)
        if found is None:
            raise
        carried = found.error if isinstance(found, _Raised) else found
    finally:
        del known
        _State.is_active = False
        handlers.restore()
    # Outside of the block, which would become its context.
    try:
        raise carried
    finally:
        del carried


def _interruption(error: BaseException, known: BaseException | None) -> BaseException | None:
    """What ended the work before something failed on the way out; None if nothing did."""
    for link in behind(error):
        if link is known:
            break
        if not isinstance(link, Exception | GeneratorExit):
            return link
    return None


def behind(error: BaseException) -> Iterator[BaseException]:
    """An error, what it came of, what that came of, and so on, each once.

    One that is kept, and raised again while what came of it is dealt with, comes of itself.
    """
    link: BaseException | None = error
    seen = set[int]()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


@contextmanager
def deferred() -> Iterator[None]:
    """Handlers of signals, that of Ctrl-C too, are called when the block is over, not in it.

    For code of libraries that is not safe to be broken off: what owns memory of C would free it
    twice.
    """
    if not _is_main():
        yield
        return
    waiting: list[tuple[Any, int, FrameType | None]] = []
    handlers = _Handlers(
        lambda handler: lambda number, frame: waiting.append((handler, number, frame)),
        with_ctrl_c=True,
    )
    handlers.replace()
    try:
        yield
    finally:
        handlers.restore()
        for handler, number, frame in waiting:
            handler(number, frame)


def is_of_handler(error: BaseException) -> bool:
    """Whether a handler of signals raised it: a function that was called with (number, frame)."""
    step = error.__traceback__
    while step is not None:
        frame, code = step.tb_frame, step.tb_frame.f_code
        named = code.co_varnames[: code.co_argcount + bool(code.co_flags & _HAS_REST)]
        given = [x for name in named for x in _flat(frame.f_locals.get(name))]
        for number, interrupted in zip(given, given[1:], strict=False):
            if isinstance(number, int) and isinstance(interrupted, FrameType):
                return True
        step = step.tb_next
    return False


def pass_on(error: BaseException) -> None:
    """Raise an error as it is if a handler of signals raised it: nothing here is at fault."""
    if is_of_handler(error):
        raise error


_HAS_REST = 4  # `*arguments`: see `inspect.CO_VARARGS`


def _flat(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


#: Whose classes of exceptions the engine's own work may raise.
_OURS = frozenset({"sardonyx", "numpy", "llvmlite", "ml_dtypes"}) | sys.stdlib_module_names


def is_foreign(kind: type[BaseException]) -> bool:
    """Whether exceptions of this class are a program's own: no part of the engine raises them."""
    return kind.__module__.partition(".")[0] not in _OURS
