"""Names for structures that are the same in every process: what a kernel is found again by.

Index variables, sizes and expressions are interned, and have no names that outlive the process. A
digest of all that one consists of is such a name. Terms of a polynomial are sorted by theirs, since
their own order is that in which the process met their atoms.
"""

from __future__ import annotations

from sardonyx.base.dtypes import DType
from sardonyx.base.hashing import blake2b
from sardonyx.base.sizes import Atom, Size
from sardonyx.tensor.rounding import Rounding
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer

#: Longer names become digests.
_LONGEST = 96


class Identities:
    """Gives names, and remembers those of what it saw."""

    def __init__(self) -> None:
        self._known: dict[object, str] = {}

    def of(self, x: object) -> str | None:
        """The name of a structure; None if it contains something that has none.

        Tuples, numbers, texts, types, sizes, expressions and placeholders of buffers have one.
        """
        try:
            return self._of(x)
        except TypeError:
            return None

    def _of(self, x: object) -> str:
        if x is None or isinstance(x, int | float):
            return f"{type(x).__name__} {x!r}"
        if isinstance(x, str):
            return f"{len(x)} {x!r}"
        if isinstance(x, tuple):
            return _short(f"({','.join(map(self._of, x))})")
        if isinstance(x, DType):
            return f"type {x.name}"
        found = self._known.get(x)
        if found is None:
            found = self._known[x] = _short(self._described(x))
        return found

    def _described(self, x: object) -> str:
        if isinstance(x, Size):
            terms = (f"{c}*{self._of(atoms)}" for atoms, c in self._sorted(x))
            return f"sum {' '.join(terms)}"
        if isinstance(x, Atom):
            payload = None if x.kind == "symbol" else x.payload  # its name is a digest of that
            return f"atom {self._of((x.kind, x.name, x.arguments, payload))}"
        if isinstance(x, Scalar):
            return f"node {self._of((x.op, x.dtype, x.arguments, x.payload))}"
        if isinstance(x, Buffer) and isinstance(x.key, str):
            return f"buffer {self._of((x.key, x.shape, x.dtype, x.value, x.known, x.constant))}"
        if isinstance(x, Rounding):
            return repr(x)
        raise TypeError(f"{type(x).__name__} has no name that outlives the process")

    def _sorted(self, x: Size) -> list[tuple[tuple[str, ...], int]]:
        return sorted((tuple(sorted(map(self._of, atoms))), c) for atoms, c in x.terms)


def _short(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return blake2b(text.encode(), digest_size=20).hexdigest()
