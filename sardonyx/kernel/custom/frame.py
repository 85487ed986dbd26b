"""What special kernels share: parameters, pointers of views, loops over coordinates.

Loops over coordinates (`loops`)::

    for i in 0..shape[0]:
        for j in 0..shape[1]: the caller's body, with (i, j)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sardonyx.base import sizes
from sardonyx.base.sizes import Dim
from sardonyx.kernel.custom.task import CustomTask, View
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.expressions.representation import from_memory, require_numbers, to_memory
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.compiled import Kernel, KernelParameters, Place
from sardonyx.kernel.language.program import Literal, Operand
from sardonyx.kernel.language.types import I64, memory_type
from sardonyx.tensor.tensor import Tensor


class KernelFrame:
    """The start of a special kernel: its builder, and access to elements by coordinates.

    Args:
        task: The invocation.
        symbol: The kernel's name.
        sizes: More sizes that the kernel asks for, beyond those of its views.
    """

    def __init__(self, task: CustomTask, symbol: str, sizes: Sequence[Dim] = ()) -> None:
        self.task = task
        views = [v for v in (*task.operands, *task.outputs) if v is not None]
        dims: list[Dim] = list(sizes)
        for view in views:
            dims += [*view.shape, *view.strides, view.offset]
        self.parameters = KernelParameters([v.buffer for v in views], dims)
        self.builder = Builder(symbol, self.parameters.types(), kind="kernel")
        self._pointers: dict[Tensor, Operand] = {
            t: self.builder.parameter(f"p{k}") for k, t in enumerate(self.parameters.buffers)
        }
        self._sizes = Expression(self.builder, self.parameters.atoms(self.builder), self._no_place)
        for dim in dims:  # known before any loop, so that loops find them computed
            self._sizes.dim(dim)

    def _no_place(self, tensor: Tensor) -> Place:
        return Place(self._pointers[tensor], (0,) * len(tensor.shape))

    def dim(self, value: Dim) -> Operand:
        """The number that a symbolic size is."""
        return self._sizes.dim(value)

    def offset(self, view: View, at: Sequence[Operand]) -> Operand:
        """Elements from the view's buffer to the element at these coordinates."""
        b = self.builder
        offset: Operand = self.dim(view.offset)
        for coordinate, stride in zip(at, view.strides, strict=True):
            if stride != 0:
                offset = _value(b, coordinate) * self.dim(stride) + offset
        return offset

    def pointer(self, view: View) -> Operand:
        """The address of the view's first element."""
        return self.builder.offset(
            self._pointers[view.buffer], self.dim(view.offset), memory_type(view.dtype)
        )

    def element_pointer(self, view: View, at: Sequence[Operand]) -> Operand:
        """The address of the element at these coordinates."""
        offset = self.offset(view, at)
        return self.builder.offset(self._pointers[view.buffer], offset, memory_type(view.dtype))

    def dims(self, values: Sequence[Dim]) -> None:
        """Compute these sizes now, before a loop that uses them."""
        for value in values:
            self._sizes.dim(value)

    def load_raw(self, view: View, at: Sequence[Operand], lanes: int = 1) -> Operand:
        """The element (or elements side by side) at these coordinates, as it lies in memory."""
        kind = memory_type(view.dtype).with_lanes(lanes)
        return self.builder.load(kind, self._pointers[view.buffer], self.offset(view, at))

    def store_raw(self, view: View, at: Sequence[Operand], stored: Operand) -> None:
        """The reverse of `load_raw`."""
        self.builder.store(stored, self._pointers[view.buffer], self.offset(view, at))

    def load(self, view: View, at: Sequence[Operand], lanes: int = 1) -> Operand:
        """The element (or elements) at these coordinates, as expressions compute with it.

        Raises:
            NotImplemented: Values of this type are held as bits, with which nothing is computed.
        """
        require_numbers(view.dtype)
        return from_memory(self.builder, self.load_raw(view, at, lanes), view.dtype)

    def store(self, view: View, at: Sequence[Operand], value: Operand) -> None:
        """Write the element (or elements) at these coordinates."""
        self.store_raw(view, at, to_memory(self.builder, value, view.dtype))

    def coordinates(self, flat: Operand, shape: Sequence[Dim]) -> list[Operand]:
        """Coordinates, in row-major order, of element number `flat`."""
        return self.builder.coordinates(flat, [self.dim(d) for d in shape])

    def loops(self, shape: Sequence[Dim]) -> Iterator[list[Operand]]:
        """One loop for each axis; gives the coordinates inside, once."""
        if not shape:
            yield []
            return
        with self.builder.for_(0, self.dim(shape[0])) as i:
            for rest in self.loops(shape[1:]):
                yield [i, *rest]

    def checked(self, index: Operand, extent: Operand) -> tuple[Operand, Operand]:
        """An index counted from the end if negative, and whether it is inside; a fault if not."""
        b = self.builder
        moved = b.select(index < 0, index + extent, index)
        inside = (moved >= 0) & (moved < extent)
        with b.if_(~inside):
            b.fault(1, index, extent)
        return moved, inside

    def kernel(self, blocks: Dim, cost_ns: Dim, scratch_bytes: Dim = 0) -> Kernel:
        """What the builder holds, as a kernel."""
        return Kernel(
            self.builder.program, self.parameters.arguments, blocks, cost_ns, scratch_bytes
        )


def _value(b: Builder, x: Operand) -> Operand:
    return b.value(I64, int(x.value)) if isinstance(x, Literal) else x


def without(shape: Sequence[Dim], axis: int) -> tuple[Dim, ...]:
    """A shape without one of its axes."""
    return (*shape[:axis], *shape[axis + 1 :])


def volume(shape: Sequence[Dim]) -> Dim:
    """How many elements a shape has."""
    return sizes.product(shape)
