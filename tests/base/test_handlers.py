"""What handlers of signals raise, in work that deals with exceptions of the same classes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from onnx import parser

import sardonyx
from sardonyx import operators
from sardonyx.base import errors
from sardonyx.base.handlers import behind, deferred, is_foreign, undisturbed
from sardonyx.compiler.drive import guarded
from sardonyx.compiler.options import EngineOptions
from sardonyx.operators import Output


class Own(Exception):
    """A program's own."""


class OwnInterrupt(KeyboardInterrupt):
    """A program's own, too."""


KINDS = [
    TimeoutError, OSError, ValueError, KeyError, MemoryError, RecursionError, RuntimeError, Own,
    OwnInterrupt, errors.InvalidGraph, SystemExit,
]  # fmt: skip


@pytest.fixture
def come() -> Iterator[Callable[[BaseException], None]]:
    """Gives a function with which a signal comes, whose handler raises."""
    raised: list[BaseException] = []

    def handler(_number: int, _frame: Any) -> None:
        raise raised.pop()

    def function(error: BaseException) -> None:
        raised.append(error)
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    yield function
    assert signal.getsignal(signal.SIGUSR1) is handler
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", KINDS)
def test_it_comes_out_as_it_is(kind: type[BaseException], come: Any) -> None:
    error = kind("mine")

    def work() -> str:
        try:
            come(error)
        except Exception:  # noqa: BLE001 - as where a cache is read
            return "swallowed"
        return "nothing happened"

    with pytest.raises(kind) as found:
        undisturbed(work)
    assert found.value is error
    assert error.__context__ is None and error.__cause__ is None


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_the_making_of_a_session(kind: type[BaseException], come: Any) -> None:
    error = kind("mine")
    with pytest.raises(kind) as found:
        guarded(EngineOptions(), lambda _: come(error))
    assert found.value is error


@pytest.mark.parametrize("kind", [Own, OwnInterrupt])
def test_cleaning_up_that_fails_does_not_hide_it(kind: type[BaseException], come: Any) -> None:
    error, known = kind("mine"), dict[str, int]()

    def work(_: EngineOptions) -> None:
        try:
            come(error)
        finally:
            del known["what the interrupted code would have put there"]

    with pytest.raises(kind) as found:
        guarded(EngineOptions(), work)
    assert found.value is error


def test_what_a_caller_deals_with_is_another_matter() -> None:
    def work() -> None:
        raise ValueError("of the work")

    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(ValueError, match="of the work"):
            undisturbed(work)


def test_an_error_that_came_of_itself() -> None:
    kept = ValueError("kept")

    def work() -> None:
        try:
            try:
                raise kept
            except ValueError as error:
                raise KeyError("came of it") from error
        except KeyError as error:
            kept.__cause__ = error
            raise kept from error

    with pytest.raises(ValueError, match="kept") as found:
        undisturbed(work)
    assert [type(x) for x in behind(found.value)] == [ValueError, KeyError]


def test_handlers_may_put_others_in_their_place() -> None:
    def second(_number: int, _frame: Any) -> None:
        """Does nothing."""

    def first(_number: int, _frame: Any) -> None:
        signal.signal(signal.SIGUSR1, second)

    before = signal.signal(signal.SIGUSR1, first)
    try:
        undisturbed(lambda: signal.raise_signal(signal.SIGUSR1))
        assert signal.getsignal(signal.SIGUSR1) is second
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_code_that_may_not_be_broken_off(come: Any) -> None:
    done = list[str]()
    with pytest.raises(Own), deferred():
        come(Own())
        done.append("all of it")
    with pytest.raises(KeyboardInterrupt), deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("again")
    assert done == ["all of it", "again"]


def test_other_threads_have_no_handlers() -> None:
    found = list[int]()
    thread = threading.Thread(target=lambda: found.append(undisturbed(lambda: 3)))
    thread.start()
    thread.join()
    assert found == [3]


def test_classes_of_a_program() -> None:
    """As they are raised from another thread by `PyThreadState_SetAsyncExc`."""
    assert is_foreign(Own)
    assert not any(map(is_foreign, (ValueError, errors.Fail, OSError, np.exceptions.AxisError)))

    def work(_: EngineOptions) -> None:
        raise Own("mine")

    with pytest.raises(Own, match="mine"):
        guarded(EngineOptions(), work)


_MODEL = """<ir_version: 8, opset_import: ["" : 17, "com.example" : 1]>
g (float[N] x) => (float[N] y) { y = com.example.Own(x) }"""


@pytest.mark.parametrize("kind", [ValueError, MemoryError, Own])
def test_a_function_of_the_callers_is_not_at_fault(kind: type[Exception], come: Any) -> None:
    error, is_due = kind("mine"), [False]

    def own(x: Any) -> Any:
        if is_due[0]:
            come(error)
        return x

    operators.function("com.example", "Own", [Output(like=0)])(own)
    try:
        session = sardonyx.InferenceSession(parser.parse_model(_MODEL).SerializeToString())
        x = np.ones(3, np.float32)
        for due in (False, True, False):
            is_due[0] = due
            if not due:
                np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
                continue
            with pytest.raises(kind) as found:
                session.run(None, {"x": x})
            assert found.value is error
    finally:
        operators.remove("com.example", "Own")
