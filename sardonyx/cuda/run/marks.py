"""Ranges of NVTX around what is launched for each node: NVIDIA's profilers show them.

    with nvtx_ranges():
        session.run(None, feeds)

or `SARDONYX_NVTX=1` for all runs of sessions that are made then. Marked runs are no graphs:
whatever a graph does is launched at once. Without either, runs do not ask.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sardonyx.base import errors
from sardonyx.base.errors import message
from sardonyx.base.notes import note
from sardonyx.cuda.run.graphs import numbered
from sardonyx.plan.plan import Command

#: Libraries with NVTX's functions: of CUDA 12, of CUDA 13, each as the system or a wheel has it.
_LIBRARIES = (
    "libnvToolsExt.so.1",
    "nvidia/nvtx/lib/libnvToolsExt.so.1",
    "libnvtx3interop.so",
    "nvidia/cu13/lib/libnvtx3interop.so.1",
    "nvidia/cu13/lib/libnvtx3interop.so",
)


class Nvtx(NamedTuple):
    """NVTX's functions: begin a range, with its name; end the last that was begun."""

    push: Callable[[str], object]
    pop: Callable[[], object]

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """What is launched in the block belongs to a range."""
        self.push(name)
        try:
            yield
        finally:
            self.pop()


#: What marks runs of this thread, or of this task.
MARKS: ContextVar[Nvtx | None] = ContextVar("nvtx", default=None)


@contextmanager
def nvtx_ranges() -> Iterator[None]:
    """Mark all runs on a GPU that this thread makes inside.

    Runs of the processor have no ranges. Where nothing was marked, the log says so, once.

    Raises:
        EPFail: NVTX is not installed.
    """
    nvtx, is_used = find_nvtx(), False

    def push(name: str) -> object:
        nonlocal is_used
        is_used = True
        return nvtx.push(name)

    token = MARKS.set(Nvtx(push, nvtx.pop))
    try:
        with numbered(-1):
            yield
    finally:
        MARKS.reset(token)
    if not is_used:
        note("nvtx_ranges()", "no kernel ran on a GPU inside")


@cache
def find_nvtx() -> Nvtx:
    """NVTX, through the package `nvtx` or the library itself.

    Raises:
        EPFail: Neither is installed.
    """
    try:
        nvtx = importlib.import_module("nvtx")
    except ImportError:
        return _from_library()
    return Nvtx(nvtx.push_range, nvtx.pop_range)


def _from_library() -> Nvtx:
    found = importlib.util.find_spec("nvidia")
    places = list(found.submodule_search_locations or ()) if found is not None else []
    for name in _LIBRARIES:
        first, _, rest = name.partition("/")
        paths = [str(Path(place) / rest) for place in places] if rest else [first]
        for path in paths:
            try:
                library = ctypes.CDLL(path)
                return Nvtx(_encoding(library.nvtxRangePushA), library.nvtxRangePop)
            except (OSError, AttributeError):
                continue
    raise errors.EPFail(message("NVTX", "It is not installed", do="pip install nvtx"))


def _encoding(push: Callable[[bytes], object]) -> Callable[[str], object]:
    return lambda name: push(name.encode())


def name_of(command: Command) -> str:
    """What a command's range is called: its nodes, and its kernel."""
    return f"{', '.join(command.origin)} ({command.kernel})" if command.origin else command.kernel
