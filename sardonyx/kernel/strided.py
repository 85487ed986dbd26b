"""Lanes a few elements apart, out of vectors that lie side by side.

A pooling or a convolution by strides of 2 along the lanes would gather them one by one: as many
loads as there are lanes, where as many as the stride have all that is needed.
"""

from __future__ import annotations

from sardonyx.kernel.builder import Builder
from sardonyx.kernel.program import Operand
from sardonyx.kernel.types import Type

#: Strides above this leave too much of every vector unused.
LONGEST_STRIDE = 4
#: Fewer lanes are gathered as fast; a GPU's threads have no shuffles among their own lanes.
FEWEST_LANES = 8


def load_strided(b: Builder, base: Operand, element: Type, lanes: int, stride: int) -> Operand:
    """The elements at `base`, `stride` apart: nothing before the first or behind the last is read.

    Args:
        b: Where statements go.
        base: Address of lane 0.
        element: Type of an element in memory.
        lanes: How many.
        stride: From 2 to `LONGEST_STRIDE`.
    """
    last = (stride - 1) * (lanes - 1)  # so that the last vector ends with the last lane
    starts = [min(k * lanes, last) for k in range(stride)]
    kind = element.with_lanes(lanes)
    vectors = [b.load(kind, base, start) for start in starts]
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
