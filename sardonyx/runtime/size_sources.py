"""Which node makes a size that cannot be, for errors."""

from __future__ import annotations

import math

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.runtime.arena import Words
from sardonyx.runtime.plan_tables import PlanTables


@dataclass(frozen=True, slots=True)
class Blamed:
    """A node, and the shape that it makes with the feeds of a run.

    Attributes:
        where: The node, as errors name it.
        shape: The shape; () where a size of it divides by zero.
    """

    where: str
    shape: tuple[int, ...]


def find_maker(image: PlanTables, slots: Words, segment: int, most_bytes: int) -> Blamed | None:
    """The first node whose result has a negative size or takes more than `most_bytes`.

    Args:
        image: The plan's tables.
        slots: Values of the tape's slots; those of symbols are known up to `segment`.
        segment: The segment that was refused.
        most_bytes: What a value may take.
    """
    tape = image.tape
    reached = tape.chains[segment]
    known = {
        name: int(slots[slot])
        for name, slot in tape.symbols.items()
        if tape.segment_of[slot] in reached
    }
    for maker in image.plan.makers:
        try:
            shape = tuple(sizes.evaluate(d, known) for d in maker.dims)
        except KeyError:  # a size that this run has not come to
            continue
        except ZeroDivisionError:
            return Blamed(maker.where, ())
        if min(shape) < 0 or math.prod(shape) * maker.element_bytes > most_bytes:
            return Blamed(maker.where, shape)
    return None
