"""Engines from the disk cache, and into it.

One entry holds the plan and what the session must know of the model, one the machine code, one the
constants (packed weights and what else the plan reads), which is mapped: all sessions and processes
share it. The first says which code and constants belong to it. Each session checks every byte of
them before it is made.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.log import get_logger, remark
from sardonyx.base.records import dataclass
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.engine import Engine, UnrankedEngine
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.provider import Provider
from sardonyx.runtime.team import Team
from sardonyx.store.cache import Cache
from sardonyx.store.checksums import SIZE_BYTES
from sardonyx.store.model_record import ModelRecord, constants_in

if TYPE_CHECKING:
    from sardonyx.compiler.built import Built
    from sardonyx.compiler.plan_store import StoredPlan

_logger = get_logger("session")
#: Kinds of entries of the cache.
_SESSION, _CODE, _DATA = "session", "code", "data"


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
    written = cache.read(key, _SESSION)
    if written is None:
        return None
    digests, written = _split(written)
    with contextlib.ExitStack() as stack:
        entries = []
        for kind in (_DATA, _CODE):
            entry = cache.open(key, kind, threads=team.threads, later=kind is _DATA)
            if entry is None:
                return None
            entries.append(stack.enter_context(entry))
        data, code = entries
        if [data.digest, code.digest] != digests:
            # Another process is writing them, or was ended between two of them.
            _logger.info("cache entry %s is in parts that do not belong together", key)
            return None
        try:
            # Threads look at the constants while the rest is read.
            data.begin(team.threads)
            record = ModelRecord.from_bytes(written)
            if not record.files_unchanged():
                return None
            constants = constants_in(data.map(), record)
            loaded = provider.load(code)
            executable = provider.executable(record.plan, loaded, constants, team, budget)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with an entry, it is rebuilt
            # Who keeps the record would keep the error, and with its frames the provider's memory.
            _logger.warning(
                "cache entry %s is not usable (%s): the model is compiled again", key, str(error)
            )
            return None
        if not cache.checked(data, key, _DATA):
            return None
    budget.take(sum(c.nbytes for c in constants), "constants", lambda: _largest(constants))
    timings["from cache"] = time.perf_counter() - start
    return engine_of(record, executable, timings)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an engine is kept.

    Attributes:
        cache: The disk cache; None to keep nothing there.
        key: Of the model; None to keep nothing there.
        kept: Takes the plan, for models that differ in weights alone.
    """

    cache: Cache | None = None
    key: str | None = None
    kept: StoredPlan | None = None


NOWHERE = Destination()


def write_engine(
    built: Built,
    provider: Provider,
    team: Team,
    timings: dict[str, float],
    budget: Budget,
    to: Destination = NOWHERE,
) -> Engine:
    """The engine of a model that was compiled; it is kept where `to` says."""
    cache, key, kept = to.cache, to.key, to.kept
    start = time.perf_counter()
    entry = None if cache is None or key is None else _Writing(cache, key, team.threads)
    constants = None if entry is None else entry.constants(built)
    is_kept = constants is not None
    if constants is None:
        constants = built.constants.arrays()
    timings["constants"] = time.perf_counter() - start
    file, code = built.generated.complete()
    if entry is not None and is_kept:
        record = built.record.to_bytes()
        entry.finish(file, record)
        if kept is not None:
            kept.keep(built, record, file)
    executable = provider.executable(built.record.plan, code, constants, team, budget)
    return engine_of(built.record, executable, timings)


class _Writing:
    """The three entries of an engine, while they are written: what says the others' digests last.

    So whatever ends a process meanwhile, and whoever else writes them, a reader sees that they do
    not belong together.
    """

    def __init__(self, cache: Cache, key: str, threads: int) -> None:
        self._cache, self._key, self._threads = cache, key, threads
        self._data = b""

    def constants(self, built: Built) -> list[np.ndarray[Any, Any]] | None:
        """The constants, mapped from their entry; None if there is none."""
        digest = self._cache.put(
            self._key, _DATA, built.constants.write, lasting=True, threads=self._threads
        )
        if digest is None:
            return None
        entry = self._cache.open(self._key, _DATA, threads=self._threads)
        if entry is None:
            return None
        with entry:
            if entry.digest != digest:  # another process was faster, with another plan
                return None
            self._data = digest
            # What another process drops from the cache meanwhile stays mapped.
            return constants_in(entry.map(), built.record)

    def finish(self, code: bytes, record: bytes) -> None:
        """Write what is left."""
        digest = self._cache.put(self._key, _CODE, code, lasting=True)
        if digest is not None:
            self._cache.put(self._key, _SESSION, self._data + digest + record, lasting=True)


def _split(written: bytes) -> tuple[list[bytes], bytes]:
    """Digests of constants and code, and the record."""
    return [written[:SIZE_BYTES], written[SIZE_BYTES : 2 * SIZE_BYTES]], written[2 * SIZE_BYTES :]


def repeat_remarks(record: ModelRecord) -> None:
    """Warn of what loading the model's file warned of, where the file is not loaded again."""
    for text in record.remarks:
        remark(text)


def engine_of(record: ModelRecord, executable: Executable, timings: dict[str, float]) -> Engine:
    """An engine that runs a plan."""
    made = UnrankedEngine if record.unranked else Engine
    return made(record, executable, timings)


def _largest(constants: list[np.ndarray[Any, Any]]) -> str:
    most = sorted(constants, key=lambda c: -c.nbytes)[:3]
    return "The largest: " + ", ".join(f"{c.nbytes} bytes ({c.dtype}{c.shape})" for c in most)
