"""Which kernels of a model are built otherwise than the cost model would: what tuning found.

What was found for a model is kept under the model's own key, so that its sessions have it; and for
each structure, so that other models on this machine have it, too, when they are compiled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.forks import compiling
from sardonyx.base.records import dataclass
from sardonyx.selection.variants import DEFAULT, Variant
from sardonyx.store.cache import Cache, digest

if TYPE_CHECKING:
    from sardonyx.plan.identity import Identities

#: Kinds of entries of the cache: of a model, and of a structure.
TUNED, _CHOICE = "tuned", "choice"


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was found for a model.

    Attributes:
        variants: By structure; those that are best as they are have none.
    """

    variants: Mapping[str, Variant]

    @property
    def identity(self) -> str:
        """Differs where other kernels come of it."""
        return digest(self.to_bytes())

    def to_numbers(self) -> dict[str, dict[str, int]]:
        """By structure, what `Variant.to_numbers` says."""
        return {name: v.to_numbers() for name, v in sorted(self.variants.items())}

    @classmethod
    def from_numbers(cls, numbers: object) -> Tuned:
        """What `to_numbers` gave.

        Raises:
            InvalidArgument: It is no such thing.
        """
        if not isinstance(numbers, Mapping) or not all(isinstance(name, str) for name in numbers):
            what = "Results of tuning have a variant for each structure"
            raise InvalidArgument(message("tuning", what, got=repr(numbers)[:80]))
        return cls({name: Variant.from_numbers(each) for name, each in numbers.items()})

    def to_bytes(self) -> bytes:
        """What `read` reads."""
        return json.dumps(self.to_numbers(), separators=(",", ":")).encode()

    @property
    def choices(self) -> Chosen:
        """For the compiler."""
        return Chosen(self.variants)


class Chosen:
    """Variants by the names of structures; see `selection.variants.Choices`."""

    def __init__(self, variants: Mapping[str, Variant]) -> None:
        self._variants, self._identities = variants, _identities()

    def of(self, key: tuple[Any, ...]) -> Variant:
        """That of a structure."""
        name = self._identities.of(key)
        return DEFAULT if name is None else self._variants.get(name, DEFAULT)


@dataclass(frozen=True, slots=True)
class Everywhere:
    """One variant for all structures; see `selection.variants.Choices`."""

    variant: Variant

    def of(self, key: tuple[Any, ...]) -> Variant:
        """The variant."""
        return self.variant


def read(cache: Cache, key: str) -> Tuned | None:
    """What was found for a model; None if it was not tuned."""
    data = cache.read(key, TUNED)
    if data is None:
        return None
    try:
        return Tuned.from_numbers(json.loads(data))
    except (ValueError, InvalidArgument):
        return None  # it is tuned again


def changed_at(cache: Cache) -> int:
    """When the choices for structures were last changed, in ns; 0 if there are none."""
    try:
        return 0 if cache.folder is None else os.stat(cache.folder / _CHOICE).st_mtime_ns
    except OSError:
        return 0


def keep(cache: Cache, key: str, tuned: Tuned, facts: str) -> None:
    """Keep what was found for a model, and for its structures on such a machine."""
    for name, variant in tuned.variants.items():
        cache.put(
            digest(facts, name), _CHOICE, json.dumps(variant.to_numbers()).encode(), lasting=True
        )
    cache.put(key, TUNED, tuned.to_bytes(), lasting=True)


class TunedStructures:
    """What was found for structures, whichever model they are of."""

    def __init__(self, cache: Cache, facts: str, identities: Identities) -> None:
        self._cache, self._facts, self._identities = cache, facts, identities
        folder = cache.folder
        self._is_empty = folder is None or not (folder / _CHOICE).is_dir()
        self._found: dict[str | None, Variant] = {None: DEFAULT}

    def of(self, key: tuple[Any, ...]) -> Variant:
        """That of a structure."""
        if self._is_empty:
            return DEFAULT
        name = self._identities.of(key)
        if name not in self._found:
            self._found[name] = self._read(digest(self._facts, name))
        return self._found[name]

    def _read(self, place: str) -> Variant:
        data = self._cache.read(place, _CHOICE)
        try:
            return DEFAULT if data is None else Variant.from_numbers(json.loads(data))
        except (ValueError, InvalidArgument):
            return DEFAULT


def _identities() -> Identities:
    # A part of the compiler: a session of a model that was tuned and compiled does not need it.
    with compiling:
        from sardonyx.plan.identity import Identities

    return Identities()
