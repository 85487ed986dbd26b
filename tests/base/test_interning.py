"""Objects by key, for as long as somebody holds them."""

import _thread
import gc
import threading

import pytest

from sardonyx.base.interning import WeakTable
from sardonyx.base.interrupt import watching


class _Thing:
    __slots__ = ("__weakref__",)


def test_a_key_has_one_object_until_it_goes():
    table = WeakTable()
    assert table.get("a") is None
    first = table.add("a", _Thing())
    assert table.add("a", _Thing()) is first
    assert table.get("a") is first
    assert table.values() == [first]
    del first
    gc.collect()
    assert table.get("a") is None
    assert len(table) == 0


def test_an_object_may_go_while_another_thread_adds():
    table = WeakTable()
    held = [table.add(k, _Thing()) for k in range(10)]
    with table._lock:
        gone = threading.Thread(target=held.clear)  # it must not wait for the lock
        gone.start()
        gone.join(10)
        assert not gone.is_alive()
    assert table.get(3) is None
    kept = table.add("new", _Thing())
    assert table.get("new") is kept
    assert len(table) == 1


def test_an_entry_that_went_takes_no_other_with_it():
    table = WeakTable()
    held = [table.add("a", _Thing())]
    with table._lock:
        gone = threading.Thread(target=held.clear)
        gone.start()
        gone.join(10)
        again = table.add("a", _Thing())  # before what went is removed
    table.add("b", again)
    assert table.get("a") is again


def test_adding_asks_now_and_then_whether_to_end():
    calls = []
    table = WeakTable()
    with watching(lambda: calls.append(1)):
        held = [table.add(k, _Thing()) for k in range(64)]
    assert 1 <= len(calls) <= len(held)


class _Signal:
    """Going, it makes a signal come: its handler runs as soon as Python does."""

    __slots__ = ()
    __del__ = staticmethod(_thread.interrupt_main)


def test_what_a_signal_raises_as_an_object_goes_is_not_lost():
    table = WeakTable()
    held = [table.add("a", _Thing()), _Signal()]  # the last one goes first
    with pytest.raises(KeyboardInterrupt):
        held.clear()
    assert table.get("a") is None
    assert len(table) == 0
