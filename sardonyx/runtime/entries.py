"""Engines from the disk cache, and into it.

One entry holds the plan and what the session must know of the model, one the machine code, one the
constants (packed weights and what else the plan reads), which is mapped: all sessions and processes
share it.
"""

from __future__ import annotations

import contextlib
import mmap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.log import get_logger, remark
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cache import Cache
from sardonyx.runtime.engine import Engine, UnrankedEngine
from sardonyx.runtime.executor import Executable
from sardonyx.runtime.provider import Provider
from sardonyx.runtime.record import Record
from sardonyx.runtime.team import Team

if TYPE_CHECKING:
    from sardonyx.runtime.built import Built
    from sardonyx.runtime.kept_plans import KeptPlan

_logger = get_logger("session")


def read_engine(
    cache: Cache,
    provider: Provider,
    key: str,
    team: Team,
    timings: dict[str, float],
    budget: Budget,
) -> Engine | None:
    """The engine of a model that was seen before; None if there is none, or it is not usable."""
    start = time.perf_counter()
    written = cache.read(key, "session")
    code_path, data_path = cache.get(key, "code"), cache.get(key, "data")
    if written is None or code_path is None or data_path is None:
        return None
    try:
        record = Record.from_bytes(written)
        if not record.files_unchanged():
            return None
        constants = map_constants(data_path, record)
        code = provider.load(code_path)
        executable = provider.executable(record.plan, code, constants, team, budget)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with an entry, it is rebuilt
        # Who keeps the record would keep the error, and with its frames the provider's memory.
        _logger.warning(
            "cache entry %s is not usable (%s): the model is compiled again", key, str(error)
        )
        return None
    budget.take(sum(c.nbytes for c in constants), "constants", lambda: _largest(constants))
    timings["from cache"] = time.perf_counter() - start
    return engine_of(record, executable, timings)


def write_engine(
    built: Built,
    provider: Provider,
    cache: Cache | None,
    key: str | None,
    team: Team,
    timings: dict[str, float],
    budget: Budget,
    kept: KeptPlan | None = None,
) -> Engine:
    """The engine of a model that was compiled; it is kept under `key` if there is one.

    Its plan is given to `kept`, for models that differ in weights alone.
    """
    start = time.perf_counter()
    entry = None if cache is None or key is None else cache
    data_path = None if entry is None else entry.put(str(key), "data", built.constants.write)
    constants = None
    if data_path is not None:
        # What another process drops from the cache meanwhile stays mapped.
        with contextlib.suppress(OSError):
            constants = map_constants(data_path, built.record)
    if constants is None:
        constants = built.constants.arrays()
    timings["constants"] = time.perf_counter() - start
    file, code = built.generated.complete()
    if entry is not None and data_path is not None:
        entry.put(str(key), "code", file)
        record = built.record.to_bytes()
        entry.put(str(key), "session", record)
        if kept is not None:
            kept.keep(built, record, file)
    executable = provider.executable(built.record.plan, code, constants, team, budget)
    return engine_of(built.record, executable, timings)


def repeat_remarks(record: Record) -> None:
    """Warn of what loading the model's file warned of, where the file is not loaded again."""
    for text in record.remarks:
        remark(text)


def engine_of(record: Record, executable: Executable, timings: dict[str, float]) -> Engine:
    """An engine that runs a plan."""
    made = UnrankedEngine if record.unranked else Engine
    return made(record, executable, timings)


def _largest(constants: list[np.ndarray[Any, Any]]) -> str:
    most = sorted(constants, key=lambda c: -c.nbytes)[:3]
    return "The largest: " + ", ".join(f"{c.nbytes} bytes ({c.dtype}{c.shape})" for c in most)


def map_constants(path: Path, record: Record) -> list[np.ndarray[Any, Any]]:
    """The constants of a session, mapped from their cache entry and never written to.

    Raises:
        InvalidArgument: The file is shorter than the record says.
    """
    if not record.constants:
        return []
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return constants_in(np.frombuffer(mapped, np.uint8), record)


def constants_in(whole: np.ndarray[Any, Any], record: Record) -> list[np.ndarray[Any, Any]]:
    """The constants of a session, in the bytes that have all of them.

    Raises:
        InvalidArgument: There are fewer bytes than the record says.
    """
    found = []
    for dtype, shape, offset, size_bytes in record.constants:
        if offset + size_bytes > whole.size:
            raise InvalidArgument(message("cache", "The file of constants is cut short"))
        part = whole[offset : offset + size_bytes].view(dtype.stored)
        found.append(part.reshape(shape))
    return found
