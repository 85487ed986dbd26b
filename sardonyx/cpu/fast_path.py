"""Runs whose shapes are those of the last run: one or two native calls, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy import empty

from sardonyx.base.errors import ContradictingSizes, SardonyxError
from sardonyx.base.handlers import is_of_handler, pass_on
from sardonyx.cpu.launcher import CpuLauncher
from sardonyx.native.layout import NEED_HOST, NOT_AGAIN
from sardonyx.runtime import refusals
from sardonyx.runtime.arrays import ITEMS_OFFSET
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.frame_pool import FramePool
from sardonyx.runtime.host_epilogue import HostEpilogue
from sardonyx.runtime.native_runs import NativeRuns
from sardonyx.runtime.try_run import WAIT, Completion, KeptItems, TryRun

#: What functions of the host raise for data that they cannot work on.
_OF_DATA = (SardonyxError, ArithmeticError, AssertionError, LookupError, TypeError, ValueError)


def fast_path(
    frames: FramePool[Any], launcher: CpuLauncher, epilogue: HostEpilogue | None
) -> TryRun:
    """See `runtime.try_run.TryRun`.

    Short runs keep Python's lock: to let go of it and to wait for it takes longer, and what native
    code reads of Python's objects cannot change meanwhile. What is called is looked up once.

    Args:
        frames: Those of the executable.
        launcher: Does runs that are not short.
        epilogue: The host's functions at the end of the plan, if it has no others.
    """
    free, runs, do_commands = frames.free, launcher.runs, launcher.do_commands
    again, fits = runs.again, runs.fits
    take, give_back = free.pop, free.append

    def try_run(
        feeds: Any,
        outputs: KeptItems | None = None,
        _completion: Completion = WAIT,
        /,
    ) -> Any:
        """See `TryRun`. Results are in memory of the host, and are waited for, in any case."""
        try:
            frame = take()
        except IndexError:
            return None
        sound = False
        try:
            if outputs is None:
                if not frame.is_known and not frame.is_short:
                    sound = True
                    return None
                if frame.recycled.is_needed:
                    results: Any = frame.recycled.arrays()
                else:
                    results = [empty(*r) for r in frame.results]
                items = tuple(results)  # native code reads it
                given, made = id(feeds) + ITEMS_OFFSET, id(items) + ITEMS_OFFSET
            elif epilogue is None:
                results, given, made = outputs, feeds.address, outputs.address
            else:
                sound = True
                return None
            if frame.is_short:
                code = again(frame.address, given, made)
                if epilogue is not None and code in (0, NEED_HOST):
                    epilogue.finish(frame, results)
                    code = 0
            elif frame.is_known:
                code = fits(frame.address, given, made)
                code = code or do_commands(frame, made, [*results])
            else:
                code = NOT_AGAIN
            if code and not _is_done(runs, frame, code, made, results):
                results = None
            sound = True
            return results
        except MemoryError as error:
            pass_on(error)
            return None
        except ContradictingSizes:
            sound = True
            return None
        except _OF_DATA as error:
            sound = isinstance(error, SardonyxError) or epilogue is not None
            if epilogue is None or is_of_handler(error):
                raise
            return None  # the data cannot be worked on: `run` says why
        finally:
            if sound:
                give_back(frame)
            else:
                frames.forget(frame)

    return try_run


def _is_done(runs: NativeRuns, frame: Frame, code: int, made: int, results: Sequence[Any]) -> bool:
    """Whether the run with this code, which is not 0, has happened; raises if it failed."""
    if code == NOT_AGAIN:
        return False
    if code < 0:
        code = runs.walk(frame, made, [*results])
    if code:
        raise refusals.fault(code, frame, runs.image.plan, None)
    return True
