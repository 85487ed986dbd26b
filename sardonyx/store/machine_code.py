"""Kernels to machine code, one function at a time: from the machine's library, or compiled apart.

A function whose text was compiled before, for whatever model, is found in a kernel archive or in
the disk cache. The others are compiled in child processes from the moment on that they are built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from sardonyx.base.errors import EngineError
from sardonyx.base.forks import compiling
from sardonyx.base.interrupt import checkpoint
from sardonyx.base.log import get_logger
from sardonyx.kernel.language.program import Program
from sardonyx.link.blob import Blob, blob_of
from sardonyx.link.elf import ObjectPart
from sardonyx.store.cache import Cache, compiler_digest, digest
from sardonyx.store.kernel_archive import archive_for
from sardonyx.targets.target import Target
from sardonyx.workers.children import Children

_log = get_logger("compile")
#: The kind of its entries.
KIND = "kernel"
_FORMAT = 1
#: What every function is called in its own text, so that equal ones have equal texts.
_OWN_NAME = "unit"


class Units:
    """Functions for one target. Use it as a context: its end ends the processes that compile.

    Args:
        target: What to generate for.
        cache: Where the library is; None for none.

    Attributes:
        target: What it generates for.
        cache: Where the library is.
        archive: What was compiled ahead; None if there is nothing for the target.
        found: How many functions the library had.
        compiled: How many it had not.
    """

    def __init__(self, target: Target, cache: Cache | None) -> None:
        self.target = target
        self.found = self.compiled = 0
        self.cache = cache
        self.archive = archive_for(target)
        self._children = Children(target, checkpoint)
        self._parts: dict[str, Callable[[], ObjectPart]] = {}
        self._places: dict[str, str] = {}

    def start(self) -> None:
        """Start a process, as there will be something to compile.

        Not where an archive may have it all: the process would take longer than what it is for.
        """
        if self.archive is None:
            self._children.start()

    def take(self, programs: Iterable[Program]) -> None:
        """Have programs compiled that are not yet; they may call each other, and no others."""
        listed = list(programs)
        missing = [p for p in listed if not p.always_inline and p.name not in self._parts]
        if not missing:
            return
        with compiling:
            from sardonyx.llvm.module import emit_unit

        for program in missing:
            text = emit_unit(program, listed, self.target, _OWN_NAME)
            self._places[program.name] = place = self._place(text)
            self._parts[program.name] = self._part(text, place)

    def adopt(self, places: Mapping[str, str]) -> bool:
        """Take functions that were compiled before, by their places in the library.

        Returns:
            Whether all of them are there; else none is taken.
        """
        new: dict[str, ObjectPart] = {}
        for name, place in places.items():
            if self._places.get(name) == place:
                continue
            held = self._read(place) if name not in self._parts else None
            if held is None:
                return False
            new[name] = held
        for name, part in new.items():
            self._parts[name], self._places[name] = _Known(part), places[name]
        self.found += len(new)
        return True

    def places(self, names: Iterable[str]) -> dict[str, str] | None:
        """Where the library has functions, or will have them; None unless that is known of all."""
        listed = list(names)
        if not all(name in self._places for name in listed):
            return None
        return {name: self._places[name] for name in listed}

    def part(self, text: str) -> WaitingUnit:
        """Have a text compiled; what is given waits for it."""
        return self._part(text, self._place(text))

    def _place(self, text: str) -> str:
        """Where the library has the code of a text, if it has it."""
        t = self.target
        return digest(KIND, _FORMAT, text, t.triple, t.cpu, t.features)

    def _read(self, place: str) -> ObjectPart | None:
        held = None if self.archive is None else self.archive.read(place, KIND)
        if held is None and self.cache is not None:
            held = self.cache.read(_key(place), KIND)
        return None if held is None else ObjectPart.from_bytes(held)

    def _part(self, text: str, place: str) -> WaitingUnit:
        held = self._read(place)
        if held is not None:
            self.found += 1
            return _Known(held)
        self.compiled += 1
        job = self._children.submit(text)

        def result() -> ObjectPart:
            data = self._children.result(job)
            if self.cache is not None:
                self.cache.put(_key(place), KIND, data)
            return ObjectPart.from_bytes(data)

        return _Compiling(result, lambda: job.result is not None)

    def blob(self, names: Iterable[str]) -> Blob:
        """Functions by name, with all that they call, as one blob.

        Raises:
            EngineError: The text of one is not valid, or LLVM cannot compile it.
        """
        parts: dict[str, ObjectPart] = {}
        left = list(names)
        while left:
            name = left.pop()
            if name in parts or name not in self._parts:
                continue  # joining says what is missing
            try:
                part = self._parts[name]()
            except EngineError as error:
                raise EngineError(f"{error} In program {name}.") from error
            self._parts[name] = _Known(part)
            where = {name if s == _OWN_NAME else s: at for s, at in part.symbols.items()}
            parts[name] = ObjectPart(part.machine, part.data, where, part.references)
            left += [reference[-1] for reference in part.references]
        return blob_of([parts[name] for name in self._parts if name in parts], self.target)

    def finished(self) -> dict[str, bytes]:
        """All that was taken, waited for: parts as bytes by their places in the library."""
        return {self._places[name]: part().to_bytes() for name, part in self._parts.items()}

    def pump(self) -> None:
        """Keep the processes busy; for long work in between."""
        self._children.pump()

    def forget(self) -> None:
        """Drop what was taken: the same names will be those of other programs."""
        self._parts.clear()
        self._places.clear()

    def close(self) -> None:
        """End the processes."""
        self._children.close()
        _log.debug("%d functions were in the library, %d were not", self.found, self.compiled)

    def __enter__(self) -> Units:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _key(place: str) -> str:
    """The cache's key of what lies at a place: other versions of LLVM make other code of a text."""
    return digest(place, compiler_digest())


class WaitingUnit(Protocol):
    """A part, which may still be compiled."""

    def __call__(self) -> ObjectPart:
        """The part, waited for."""

    def is_over(self) -> bool:
        """Whether nothing is to be waited for."""


class _Compiling:
    """A part that is being compiled: what waits for it, and whether it would."""

    def __init__(self, result: Callable[[], ObjectPart], is_over: Callable[[], bool]) -> None:
        self._result, self._is_over = result, is_over

    def __call__(self) -> ObjectPart:
        return self._result()

    def is_over(self) -> bool:
        return self._is_over()


class _Known:
    """A part that is there."""

    def __init__(self, part: ObjectPart) -> None:
        self._part = part

    def __call__(self) -> ObjectPart:
        return self._part

    def is_over(self) -> bool:
        return True
