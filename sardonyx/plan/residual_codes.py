"""Codes made of a contraction's sums that are its epilogue, though they have but one reader.

Where two branches meet in a residual sum, one of them is finished there, and what the other one
gives lies in memory. If codes are made of it first, those should lie there: a quarter of its sums.
So it is where the reader is a reduction, which is no epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sardonyx.base import integer, sizes
from sardonyx.plan.codes import CODES
from sardonyx.tensor.tensor import Contract, Map, Tensor
from sardonyx.tensor.traverse import operands_of

#: Maps between codes and the place where they meet another contraction, at most.
_MOST = 12


class ResidualCodes:
    """Finds codes that should lie in memory, though only one map reads them.

    Args:
        reads: The tensors that read one, seen through what disappears.
        roots: What is known to have memory by now, producers before readers.
        kept: What has memory in any case.
    """

    def __init__(
        self,
        reads: Callable[[Tensor], list[Tensor]],
        roots: Collection[Tensor],
        kept: Collection[Tensor],
    ) -> None:
        self._reads, self._roots, self._kept = reads, roots, kept
        self._found: set[Tensor] = set()

    def met(self, tensor: Tensor) -> bool:
        """Whether `has` was true of a tensor."""
        return tensor in self._found

    def has(self, tensor: Tensor) -> bool:
        """Whether a contraction that ends in `tensor` is finished nowhere else, or meets another.

        That is one that is not stored yet, and can be finished where they meet.
        """
        own = self._contractions(tensor)
        if not own:
            return False
        seen: dict[Tensor, None] = dict.fromkeys(self._reads(tensor))
        if len(seen) == 1 and not isinstance(next(iter(seen)), Map):
            return self._add(tensor)  # nothing but a map is an epilogue
        left = list(seen)
        while left and len(seen) <= _MOST:
            reader = left.pop()
            if not isinstance(reader, Map):
                continue
            others = self._contractions(reader) - own
            if any(self._is_finished(other, reader) for other in others):
                return self._add(tensor)
            # Codes further on are the place for what they are made of.
            if reader not in self._kept and reader.dtype not in CODES:
                new = [r for r in self._reads(reader) if r not in seen]
                seen |= dict.fromkeys(new)
                left += new
        return False

    def _add(self, tensor: Tensor) -> bool:
        self._found.add(tensor)
        return True

    def _contractions(self, tensor: Tensor) -> set[Contract]:
        """Contractions whose results a map computes with, through maps without memory."""
        found: set[Contract] = set()
        seen: set[Tensor] = set()
        stack = list(operands_of(tensor))
        while stack:
            x = stack.pop()
            if x in seen:
                continue
            seen.add(x)
            if isinstance(x, Contract):
                found.add(x)
            elif isinstance(x, Map) and x not in self._roots and x not in self._kept:
                stack.extend(operands_of(x))
        return found

    def _is_finished(self, contraction: Contract, reader: Tensor) -> bool:
        """Whether a contraction can have the reader as its epilogue."""
        if contraction in self._kept or len(self._reads(contraction)) != 1:
            return False
        volumes = (sizes.product(x.shape) for x in (contraction, reader))
        return integer.known_equal(*volumes) is True
