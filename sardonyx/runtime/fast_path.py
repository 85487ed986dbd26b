"""Runs whose shapes are those of the last run: one or two native calls, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy import empty

from sardonyx.base.errors import ContradictingSizes, SardonyxError
from sardonyx.base.handlers import is_of_handler, pass_on
from sardonyx.native.layout import NEED_HOST, NOT_AGAIN
from sardonyx.plan.plan import Plan
from sardonyx.runtime import pool, refusals
from sardonyx.runtime.arrays import ITEMS_OFFSET
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.host_epilogue import HostEpilogue
from sardonyx.runtime.leases import Leases
from sardonyx.runtime.storage import Array

#: What functions of the host raise for data that they cannot work on.
_OF_DATA = (SardonyxError, ArithmeticError, AssertionError, LookupError, TypeError, ValueError)


class FastPath(Leases):
    """The part of `executable.Executable` for such runs; see there.

    Short ones keep Python's lock: to let go of it and to wait for it takes longer, and what native
    code reads of Python's objects cannot change meanwhile.
    """

    plan: Plan
    _late: HostEpilogue | None
    _native_fits: Callable[[int, int, int], int]
    _native_again: Callable[[int, int, int], int]

    def run_again(self, feeds: tuple[object, ...]) -> list[Array] | None:
        """`run`, if its shapes are those of the last run; else None.

        None, too, where `run` knows what else to do: then the run begins again.

        Args:
            feeds: As many as there are inputs.
        """
        try:
            frame = self._free.pop()
        except IndexError:
            return None
        sound = False
        try:
            if not frame.is_known and not frame.is_short:
                sound = True
                return None
            if frame.recycled.is_needed:
                outputs: list[Any] = frame.recycled.arrays()
            else:
                outputs = [empty(*r) for r in frame.results]  # type: ignore[misc]  # none is None
            items = tuple(outputs)
            given, made = id(feeds) + ITEMS_OFFSET, id(items) + ITEMS_OFFSET
            if frame.is_short:
                code = self._native_again(frame.address, given, made)
                if self._late is not None and code in (0, NEED_HOST):
                    self._late.finish(frame, outputs)
                    code = 0
            else:
                code = self._native_fits(frame.address, given, made)
                code = code or self._do_commands(frame, made, outputs)
            is_done = not code or self._is_done(frame, code, made, outputs)
            sound = True
            return outputs if is_done else None
        except MemoryError as error:
            pass_on(error)
            return None
        except ContradictingSizes:
            sound = True
            return None
        except _OF_DATA as error:
            sound = isinstance(error, SardonyxError) or self._late is not None
            if self._late is None or is_of_handler(error):
                raise
            return None  # the data cannot be worked on: `run` says why
        finally:
            self._let_go(frame, sound)

    def prepared(self, feeds: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], bool]:
        """A function that does `run_into` if shapes are those of the last run.

        It gives False if they are not, or where `run_into` knows what else to do.
        """
        kept = tuple(feeds), tuple(outputs)  # native code reads both
        given, made = (id(items) + ITEMS_OFFSET for items in kept)
        free, again, fits = self._free, self._native_again, self._native_fits

        def run() -> bool:
            try:
                frame = free.pop()
            except IndexError:
                return False
            sound = False
            try:
                if self._late is not None:
                    code = NOT_AGAIN
                elif frame.is_short:
                    code = again(frame.address, given, made)
                elif frame.is_known:
                    code = fits(frame.address, given, made)
                    code = code or self._do_commands(frame, made, [*kept[1]])
                else:
                    code = NOT_AGAIN
                is_done = not code or self._is_done(frame, code, made, [*kept[1]])
                sound = True
                return is_done
            except ContradictingSizes:
                sound = True
                return False
            except SardonyxError:
                sound = True
                raise
            finally:
                self._let_go(frame, sound)

        return run

    def _is_done(self, frame: Frame, code: int, items: int, outputs: list[Any]) -> bool:
        """Whether the run with this code, which is not 0, has happened; raises if it failed."""
        if code == NOT_AGAIN:
            return False
        if code < 0:
            code = self._enter_until_done(frame, items, None, outputs)
        if code:
            raise refusals.fault(code, frame, self.plan, None)
        return True

    def _do_commands(self, frame: Frame, items: int, outputs: list[Any]) -> int:
        """Do the commands of a bound frame; gives the fault's code, or 0."""
        raise NotImplementedError

    def _enter_until_done(
        self, frame: Frame, items: int, workers: pool.Pool | None, outputs: list[Any]
    ) -> int:
        """The same on this thread, or on those of a pool."""
        raise NotImplementedError
