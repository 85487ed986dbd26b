"""Lanes a few elements apart, out of and into vectors that lie side by side.

A pooling or a convolution by strides of 2 along the lanes would gather them one by one: as many
loads as there are lanes, where as many as the stride have all that is needed. Likewise what lies
between the results of one vector (images that become twice as large) comes from a few others.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.language.types import Type

#: Strides above this leave too much of every vector unused.
LONGEST_STRIDE = 4
#: Fewer lanes are gathered as fast; a GPU's threads have no shuffles among their own lanes.
FEWEST_LANES = 8
#: More are the threads of a warp, and each reads where it likes.
MOST_LANES = 16


def pays(lanes: int) -> bool:
    """Whether loads and shuffles of vectors of so many lanes beat one load for each lane."""
    return FEWEST_LANES <= lanes <= MOST_LANES


def load_strided(
    b: Builder, base: Operand, element: Type, lanes: int, stride: int, mask: Operand | None = None
) -> Operand:
    """The elements at `base`, `stride` apart: nothing before the first or behind the last is read.

    Args:
        b: Where statements go.
        base: Address of lane 0.
        element: Type of an element in memory.
        lanes: How many.
        stride: From 2 to `LONGEST_STRIDE`.
        mask: Lanes that are wanted: nothing else is read. Others are zero.
    """
    last = (stride - 1) * (lanes - 1)  # so that the last vector ends with the last lane
    starts = [min(k * lanes, last) for k in range(stride)]
    kind = element.with_lanes(lanes)
    masks = [None if mask is None else _elements(b, mask, stride, start) for start in starts]
    vectors = [
        b.load(kind, base, start, mask=wanted) for start, wanted in zip(starts, masks, strict=True)
    ]
    holders = [min(lane * stride // lanes, stride - 1) for lane in range(lanes)]
    result = vectors[0]
    for number in range(1, stride):
        chosen = []
        for lane, holder in enumerate(holders):
            at = lane * stride - starts[holder]
            if holder == number:
                chosen.append(lanes + at)
            else:
                chosen.append(at if number == 1 and holder == 0 else lane)
        result = b.shuffle(result, vectors[number], chosen)
    return result


def _elements(b: Builder, mask: Operand, stride: int, start: int) -> Operand:
    """Which elements of the vector at `start` belong to lanes of the mask."""
    lanes = mask.type.lanes
    none = b.constant(mask.type, 0)
    chosen = [lanes if (start + k) % stride else (start + k) // stride for k in range(lanes)]
    return b.shuffle(mask, none, chosen)


def repeats(lanes: int, count: int, step: int) -> bool:
    """Whether elements `step` apart, each for `count` lanes, lie within one vector."""
    return pays(lanes) and lanes % count == 0 and step * (lanes // count - 1) < lanes


def load_repeated(
    b: Builder,
    base: Operand,
    vector: Type,
    count: int,
    step: int,
    mask: Operand | None = None,
) -> Operand:
    """The elements at `base`, `step` apart, each of them for `count` lanes: nothing else is read.

    Args:
        b: Where statements go.
        base: Address of the first element.
        vector: Type of the result: of elements in memory.
        count: How many lanes have the same element.
        step: Such that `repeats` holds.
        mask: Lanes that are wanted: the first few, a multiple of `count`. Others are zero.
    """
    lanes = vector.lanes
    places = [lane // count * step for lane in range(lanes)]
    every = b.constant(Type("i1", lanes), 1)
    first = {place: lane for lane, place in reversed(list(enumerate(places)))}
    wanted = b.shuffle(
        every if mask is None else mask,
        b.constant(every.type, 0),
        [first.get(place, lanes) for place in range(lanes)],
    )
    loaded = b.load(vector, base, 0, mask=wanted)
    return b.shuffle(loaded, loaded, places)


def interleaved(b: Builder, vectors: Sequence[Operand]) -> list[Operand]:
    """Lane 0 of each vector, then lane 1 of each, and so on: as many vectors as there are."""
    count, lanes = len(vectors), vectors[0].type.lanes
    results = []
    for first in range(0, count * lanes, lanes):
        places = [divmod(first + k, count) for k in range(lanes)]
        result = vectors[0]
        for number in range(1, count):
            chosen = []
            for k, (lane, holder) in enumerate(places):
                if holder == number:
                    chosen.append(lanes + lane)
                else:
                    chosen.append(lane if number == 1 else k)
            result = b.shuffle(result, vectors[number], chosen)
        results.append(result)
    return results
