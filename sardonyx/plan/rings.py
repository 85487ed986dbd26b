"""Carried values that are computed where the next iteration reads them.

A ring is memory for several values of one size, in turn. In iteration t its member number i lies in
slot t - i, counted round the ring. So what a member hands on to the next one (a body that swaps two
values, or keeps the last few) is not moved at all. Unless the last member hands its value on to
the first one, there is one slot more than there are members: the first member's next value is
written to it while all others are still read. A single value has two slots, which take turns.
"""

from __future__ import annotations

from collections.abc import Mapping

from sardonyx.base import integer, sizes
from sardonyx.base.dtypes import UINT8
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.plan.reasons import Reason
from sardonyx.tensor.region import Repetition
from sardonyx.tensor.tensor import Buffer

#: Name of the pass.
RINGS = "rings"
#: Slots begin at multiples of so many bytes, as buffers do.
_ALIGNMENT = 64
#: A copy of fewer bytes costs no more than addresses that change from iteration to iteration.
_LEAST_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Ring:
    """Memory for carried values.

    Attributes:
        members: Numbers of the values; each takes over what the one before it was.
        is_closed: Whether the first one takes over what the last one was.
        memory: All slots.
        slot_bytes: What a slot takes.
    """

    members: tuple[int, ...]
    is_closed: bool
    memory: Buffer
    slot_bytes: Dim

    @property
    def slots(self) -> int:
        """How many there are."""
        return len(self.members) + (not self.is_closed)

    @property
    def takes_turns(self) -> bool:
        """Whether there are two slots: then one place tells all, without a division."""
        return self.slots == 2

    def place(self, member: int, iteration: Dim) -> Dim:
        """At which byte a member, counted from 0, lies in an iteration."""
        turn = iteration + (self.slots - member)
        return integer.modulo(turn, self.slots) * self.slot_bytes

    def opposite(self, place: Dim) -> Dim:
        """The other place of two."""
        return self.slot_bytes - place


def taken_over(region: Repetition) -> dict[int, int]:
    """For carried values that an iteration takes over from others as they are: from which one.

    No value is taken over twice, and all that take part have sizes that no iteration changes.
    """
    numbers = {c.inside: k for k, c in enumerate(region.carried) if not c.sizes}
    found: dict[int, int] = {}
    outputs = region.body.outputs[int(region.goes_on) :]
    for k, (carried, output) in enumerate(zip(region.carried, outputs, strict=False)):
        source = numbers.get(output) if isinstance(output, Buffer) else None
        if source is None or source == k or carried.sizes or source in found.values():
            continue
        same = output.shape == carried.inside.shape and output.dtype is carried.inside.dtype
        if same:
            found[k] = source
    return found


def why_no_ring(region: Repetition) -> Reason:
    """Why none of a loop's carried values lies in a ring."""
    if not region.carried:
        return Reason("it carries no values")
    if all(c.sizes for c in region.carried):
        return Reason("its iterations change the sizes of what it carries")
    return Reason("it carries values of fewer than {} bytes each", _LEAST_BYTES)


def rings_of(region: Repetition, sources: Mapping[int, int]) -> list[Ring]:
    """The rings of a loop.

    Args:
        region: The loop.
        sources: What `taken_over` gives.
    """
    followers = {source: k for k, source in sources.items()}
    firsts = [k for k in range(len(region.carried)) if k not in sources]
    chains = [(_chain(k, followers), False) for k in firsts]
    rest = set(sources) - {k for chain, _ in chains for k in chain}
    while rest:
        cycle = _chain(min(rest), followers)
        chains.append((cycle, True))
        rest -= set(cycle)
    found = []
    for members, is_closed in chains:
        inside = region.carried[members[0]].inside
        size = sizes.product(inside.shape) * inside.dtype.size_bytes
        is_small = isinstance(size, int) and size < _LEAST_BYTES
        if len(members) == 1 and (is_small or region.carried[members[0]].sizes):
            continue
        slot_bytes = integer.ceildiv(size, _ALIGNMENT) * _ALIGNMENT
        slots = len(members) + (not is_closed)
        memory = Buffer((slot_bytes * slots,), UINT8, ("ring", inside))
        found.append(Ring(tuple(members), is_closed, memory, slot_bytes))
    return found


def _chain(first: int, followers: Mapping[int, int]) -> list[int]:
    """A value, the one that takes it over, and so on; a cycle is gone round once."""
    found = [first]
    while (following := followers.get(found[-1])) is not None and following != first:
        found.append(following)
    return found
