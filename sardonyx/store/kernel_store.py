"""The machine's library of built kernels: a structure that was built before is not built again.

Building a kernel takes Python many times as long as reading what came of it. An entry says what a
plan must know of a kernel, and where the machine code of its functions is, which
`store.machine_code` keeps. Its key is the structure that it serves, with all that building depends
on, and the source of the engine. An entry whose code is gone is of no use; the kernel is built as
if there were none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sardonyx.base.errors import EngineError, SardonyxError
from sardonyx.base.forks import compiling
from sardonyx.base.log import get_logger
from sardonyx.plan.identity import Identities
from sardonyx.selection.codec import CodeLocation, stem_of
from sardonyx.store.cache import Cache, digest, kernel_digest
from sardonyx.store.machine_code import Units
from sardonyx.store.tuning_choices import TunedStructures

if TYPE_CHECKING:
    from sardonyx.selection.kernel_record import KernelRecord

_log = get_logger("compile")
#: The kind of its entries.
KIND = "formed"


class KernelStore:
    """The kernels of one cache, and of an archive; see `selection.kernel_record.Keeper`.

    Args:
        cache: Where they are.
        units: Has the functions compiled, and gets those of kernels that are found.
        facts: All that decides on how a structure is built, beside the engine's source.

    Attributes:
        found: How many kernels were known.
        made: How many were not.
        facts: Digest of all that decides on how a structure is built.
        cache: Where further ones are kept.
        archive: What was built ahead; None if there is nothing for the target.
        choices: Which of them are built otherwise than the cost model would.
        identities: Names of structures.
        codes: Where the machine code of kernels is, by their names in this process.
    """

    def __init__(self, cache: Cache, units: Units, facts: tuple[object, ...]) -> None:
        self.found = self.made = 0
        self.cache, self._units, self.archive = cache, units, units.archive
        self.identities = Identities()
        self.facts = digest(kernel_digest(), units.target.key, facts)
        self.choices = TunedStructures(cache, self.facts, self.identities)
        self.codes: dict[str, CodeLocation] = {}
        self._names: dict[CodeLocation, str] = {}
        self._new: dict[str, KernelRecord] = {}

    def _key(self, key: tuple[object, ...]) -> str | None:
        name = self.identities.of(key)
        return None if name is None else digest(KIND, self.facts, name)

    def find(self, key: tuple[object, ...], name: Callable[[str], str]) -> KernelRecord | None:
        """The kernel of a structure, whose machine code `units` has then."""
        place = self._key(key)
        if place is None:
            return None
        data = None if self.archive is None else self.archive.read(place, KIND)
        data = self.cache.read(place, KIND) if data is None else data
        if data is None:
            return None
        with compiling:
            from sardonyx.selection.kernel_record import from_bytes
        try:
            written = from_bytes(place, data)
            own = name(written.code.stem)
            record = written.record(own)
        except (
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            AttributeError,
            SardonyxError,
        ) as error:
            _log.warning("a kernel of the library cannot be read, and is made again: %s", error)
            return None
        return record if self._has(written.code, own) else None

    def named(self, code: CodeLocation, name: Callable[[str], str]) -> str | None:
        """What a kernel is called whose machine code is there, and that `units` has then.

        Args:
            code: Where it is.
            name: Gives the kernel a name, from how such names begin.

        Returns:
            None if it is not there.
        """
        known = self._names.get(code)
        if known is not None:
            return known
        own = name(code.stem)
        return own if self._has(code, own) else None

    def _has(self, code: CodeLocation, name: str) -> bool:
        """Whether a kernel's code is there; `units` has it then."""
        if not self._units.adopt(code.places(name)):
            return False
        self.found += 1
        self._take(code, name)
        return True

    def _take(self, code: CodeLocation, name: str) -> None:
        self.codes[name] = code
        self._names.setdefault(code, name)

    def keep(self, key: tuple[object, ...], record: KernelRecord) -> None:
        """Take a kernel that was built; `write` writes it."""
        self.made += 1
        place = self._key(key)
        if place is not None:
            self._new[place] = record

    def write(self) -> None:
        """Write what was taken and handed to `units`."""
        if self._new:
            with compiling:
                from sardonyx.selection.kernel_record import to_bytes
        for place, record in self._new.items():
            kernel = record.kernel
            programs = (kernel.program, *kernel.functions)
            names = [p.name for p in programs if not p.always_inline]
            places = self._units.places(names)
            if places is None:
                continue
            own = kernel.program.name
            code = CodeLocation(stem_of(own), places.pop(own), tuple(places.items()))
            self._take(code, own)
            try:
                self.cache.put(place, KIND, to_bytes(place, record, code))
            except EngineError as error:
                _log.debug("%s is not kept: %s", kernel.program.name, error)
        self._new.clear()
        _log.debug("%d kernels were known, %d were made", self.found, self.made)
