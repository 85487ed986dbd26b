"""Calls of whole graphs: branches and loops.

The body of a region is lowered to tensors of its own. It reads tensors from outside through
buffers that stand for them; those are the operands of the call.
"""

from __future__ import annotations

from dataclasses import field

from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.tensor.assumptions import Assumption
from sardonyx.tensor.measuring import Measured
from sardonyx.tensor.tensor import Buffer, Tensor

#: Kernel names of calls whose attribute `region` is one of the classes below.
REGIONS = frozenset(("if", "loop"))


@dataclass(eq=False, slots=True)
class Body:
    """A lowered graph inside another one.

    Attributes:
        outputs: What it computes.
        measured: Symbols that are measured in it.
        assumptions: Pairs of sizes that are taken as equal in it, and why.
        origins: Names of the nodes behind each tensor.
        symbols: Symbols that mean nothing outside it.
        ends: The region in it whose end brings a symbol.
    """

    outputs: list[Tensor]
    measured: dict[Dim, Measured] = field(default_factory=dict)
    assumptions: dict[Assumption, str] = field(default_factory=dict)
    origins: dict[Tensor, tuple[str, ...]] = field(default_factory=dict)
    symbols: set[Dim] = field(default_factory=set)
    ends: dict[Dim, Tensor] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Region:
    """What branches and loops have in common.

    Attributes:
        outside: For each operand of the call, the buffer that stands for it in the bodies.
        finals: For each result, the sizes of it that only the end of the region brings, by axis.
    """

    outside: list[Buffer]
    finals: list[dict[int, Dim]]


@dataclass(eq=False, slots=True)
class Branches(Region):
    """Two bodies, of which a bool decides between; their outputs are the results.

    Attributes:
        condition: The buffer that stands for the bool.
        then: What is done if it is true.
        otherwise: What is done if not.
    """

    condition: Buffer
    then: Body
    otherwise: Body


@dataclass(eq=False, slots=True)
class Carried:
    """A value that goes from one iteration to the next.

    Attributes:
        initial: The buffer that stands for its first value.
        inside: The buffer that the body reads.
        sizes: Symbols in the shape of `inside` that change from iteration to iteration, by axis.
    """

    initial: Buffer
    inside: Buffer
    sizes: dict[int, Dim] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Sliced:
    """A tensor of which every iteration reads one slice along the first axis.

    Attributes:
        whole: The buffer that stands for it.
        inside: The buffer of one slice.
        position: Which slice, by the counter.
    """

    whole: Buffer
    inside: Buffer
    position: Dim


@dataclass(eq=False, slots=True)
class Repetition(Region):
    """A body that runs again and again.

    Its outputs are: whether to go on, if that is not always so; the carried values; and slices, one
    per iteration, of the other results. The call's results are the carried values and those.

    Attributes:
        trips: How often at most.
        counter: The symbol of the iteration's number.
        condition: The buffer that stands for the bool whether to begin at all; None: yes.
        goes_on: Whether the first output says whether to go on.
        carried: Values from iteration to iteration.
        sliced: Tensors read slice by slice.
        places: Where the slice of each other result goes, by the counter.
        count: The symbol of the number of iterations, if only the end brings it.
        body: The body.
    """

    trips: Dim
    counter: Dim
    condition: Buffer | None
    goes_on: bool
    carried: list[Carried]
    sliced: list[Sliced]
    places: list[Dim]
    count: Dim | None
    body: Body
