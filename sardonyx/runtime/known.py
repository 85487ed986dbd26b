"""The machine's library of formed kernels: a structure that was formed before is not formed again.

Forming a kernel takes Python many times as long as reading what came of it. An entry says what a
plan must know of a kernel, and where the machine code of its functions is, which `runtime.units`
keeps. Its key is the structure that it serves, with all that forming depends on, and the source of
the engine. An entry whose code is gone is of no use; the kernel is formed as if there were none.
"""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.base.errors import EngineError
from sardonyx.base.log import get_logger
from sardonyx.codegen.formed import Formed, from_bytes, to_bytes
from sardonyx.plan.identity import Identities
from sardonyx.runtime.cache import Cache, digest, engine_digest
from sardonyx.runtime.choices import Known
from sardonyx.runtime.units import Units

_log = get_logger("compile")
_KIND = "formed"


class KnownKernels:
    """The kernels of one cache; see `codegen.formed.Keeper`.

    Args:
        cache: Where they are.
        units: Has the functions compiled, and gets those of kernels that are found.
        facts: All that decides on how a structure is formed, beside the engine's source.

    Attributes:
        found: How many kernels were known.
        formed: How many were not.
        facts: Digest of all that decides on how a structure is formed.
        choices: Which of them are formed otherwise than the cost model would.
    """

    def __init__(self, cache: Cache, units: Units, facts: tuple[object, ...]) -> None:
        self.found = self.formed = 0
        self._cache, self._units = cache, units
        self._identities = Identities()
        self.facts = digest(engine_digest(), units.target.key, facts)
        self.choices = Known(cache, self.facts, self._identities)
        self._new: dict[str, Formed] = {}

    def _key(self, key: tuple[object, ...]) -> str | None:
        name = self._identities.of(key)
        return None if name is None else digest(_KIND, self.facts, name)

    def find(self, key: tuple[object, ...], name: Callable[[str], str]) -> Formed | None:
        """The kernel of a structure, whose machine code `units` has then."""
        place = self._key(key)
        data = None if place is None else self._cache.read(place, _KIND)
        if place is None or data is None:
            return None
        try:
            written = from_bytes(place, data)
            own = name(written.stem)
            formed = written.formed(own)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, EngineError) as error:
            _log.warning("a kernel of the library cannot be read, and is made again: %s", error)
            return None
        if not self._units.adopt({**written.others, own: written.code}):
            return None
        self.found += 1
        return formed

    def keep(self, key: tuple[object, ...], formed: Formed) -> None:
        """Take a kernel that was formed; `write` writes it."""
        self.formed += 1
        place = self._key(key)
        if place is not None:
            self._new[place] = formed

    def write(self) -> None:
        """Write what was taken and handed to `units`."""
        for place, formed in self._new.items():
            kernel = formed.kernel
            programs = (kernel.program, *kernel.functions)
            names = [p.name for p in programs if not p.always_inline]
            code = self._units.places(names)
            if code is None:
                continue
            try:
                self._cache.put(place, _KIND, to_bytes(place, formed, code))
            except EngineError as error:
                _log.debug("%s is not kept: %s", kernel.program.name, error)
        self._new.clear()
        _log.debug("%d kernels were known, %d were formed", self.found, self.formed)
