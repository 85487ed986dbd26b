"""What the parts of a contraction's kernel write with, and the scratch memory that they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sardonyx.base import integer
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.compiled import KernelParameters, Place
from sardonyx.kernel.language.program import Operand
from sardonyx.kernel.matmul.contraction_schedule import ContractionSchedule
from sardonyx.kernel.matmul.factors import Packing
from sardonyx.plan.axes import dims_of
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, Tensor
from sardonyx.tensor.traverse import loads_of

_ALIGN = 64

#: Names of parts of scratch, and how many bytes each has.
Layout = list[tuple[str, Dim]]


class Scratch:
    """A thread's memory, in parts that have names.

    Attributes:
        bytes: How many all parts have.
    """

    def __init__(self) -> None:
        self.bytes: Dim = 0
        self._pointers: dict[str, Operand] = {}

    def divide(self, outside: Expression, layout: Layout) -> None:
        """Give each part its place, aligned, in this order."""
        b = outside.builder
        whole = b.context("scratch")
        for name, wanted in layout:
            self._pointers[name] = b.offset(whole, outside.dim(self.bytes))
            self.bytes = self.bytes + integer.ceildiv(wanted, _ALIGN) * _ALIGN

    def __getitem__(self, name: str) -> Operand:
        return self._pointers[name]

    def __contains__(self, name: str) -> bool:
        return name in self._pointers


@dataclass(eq=False, slots=True)
class KernelContext:
    """What the parts of one kernel share.

    Attributes:
        schedule: How the kernel goes over the contraction's axes.
        outside: What no block changes.
        places: Where tensors lie.
        packs: What was packed before the run; nothing where blocks pack their panels.
        arguments: What the kernel's parameters are.
        scratch: The thread's memory.
    """

    schedule: ContractionSchedule
    outside: Expression
    places: dict[Tensor, Place]
    packs: Sequence[Packing]
    arguments: tuple[Buffer | Dim, ...]
    scratch: Scratch

    @property
    def b(self) -> Builder:
        """Writes the kernel."""
        return self.outside.builder


def begin_kernel(
    s: ContractionSchedule, name: str, packs: Sequence[Packing], beside: Iterable[Scalar] = ()
) -> KernelContext:
    """A kernel without statements.

    Args:
        s: How it goes over the contraction's axes.
        name: Symbol name.
        packs: What is packed before the run: first the right factor, if it is.
        beside: Expressions that blocks evaluate besides factors and epilogue.
    """
    beside = tuple(beside)
    touched = [x.buffer for x in loads_of(s.factors.left)]
    touched += [p.packed for p in packs] or [x.buffer for x in loads_of(s.factors.right)]
    for body in (*beside, s.epilogue.body):
        touched += [x.buffer for x in loads_of(body) if x is not s.epilogue.token]
    touched.append(s.group.root.buffer)
    dims: list[Dim] = [
        *s.axes.batch,
        *s.axes.rows,
        s.axes.column,
        *s.axes.outer_columns,
        *s.access.reduced,
    ]
    for tensor in touched:
        dims += s.strides.get(tensor, ()) or ()
    for body in (s.factors.left, s.factors.right, *beside, s.epilogue.body):
        dims += list(dims_of(body))
    dims += [*s.epilogue.store_at, s.loops.rows]
    parameters = KernelParameters(touched, dims)
    for pack in packs:
        s.strides[pack.packed] = (0,) * len(pack.packed.shape)
    b = Builder(name, parameters.types(), kind="kernel")
    places = parameters.places(b, s.strides)
    outside = Expression(b, parameters.atoms(b), places.__getitem__)
    return KernelContext(s, outside, places, packs, parameters.arguments, Scratch())
