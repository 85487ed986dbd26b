"""Groups for any sizes: symbols in place of numbers, so that a kernel serves other sizes, too.

A group and the values of its symbols are the group of numbers again, whichever numbers were chosen:
what differs is only how many groups share a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import Any, Generic, TypeVar

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.plan.axes import extent_of
from sardonyx.plan.canonical import Canonical, placeholder
from sardonyx.plan.reasons import Reason
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import Buffer, Tensor
from sardonyx.tensor.traverse import loads_of

_General = TypeVar("_General", bound=Any)  # a record with a field `actual`

#: How far from the end of its axis an index may end that is said with the axis' extent.
_NEAR = 8


@dataclass(slots=True)
class Remembered(Generic[_General]):
    """What was made general before: layers of one structure differ in their buffers alone.

    Attributes:
        make: Makes a group general, over stand-ins whose buffers it names in `actual`; or says why
            that cannot be.
    """

    make: Callable[[Canonical], _General | Reason]
    _known: dict[object, tuple[dict[Buffer, Buffer], _General | Reason]] = field(
        default_factory=dict
    )

    def of(self, canonical: Canonical) -> _General | Reason:
        """What `make` makes of a group."""
        found = self._known.get(canonical.key)
        if found is None:
            placeholders = {actual: p for p, actual in canonical.buffers.items()}
            made = self.make(canonical)
            self._known[canonical.key] = placeholders, made
            return made
        placeholders, made = found
        if isinstance(made, Reason):
            return made
        actual = {b: canonical.buffers[placeholders[t]] for b, t in made.actual.items()}
        return replace(made, actual=actual)


class Generaliser:
    """Makes stand-ins for the axes and buffers of a group; equal groups get equal names.

    Args:
        canonical: The group.

    Attributes:
        values: What the symbols stand for.
        actual: What the stand-ins of buffers stand for.
    """

    def __init__(self, canonical: Canonical) -> None:
        self._canonical = canonical
        self.values: dict[Atom, Dim] = {}
        self.actual: dict[Buffer, Buffer] = {}
        self._symbols: dict[Dim, Dim] = {}
        self._extents: dict[Atom, Dim] = {}
        self._atoms: dict[Atom, Dim] = {}
        self._stand_ins: dict[Buffer, Buffer] = {}
        self._strides: dict[Tensor, tuple[Dim, ...]] = {}
        #: Whether stand-ins have no axes of one element; those that a buffer has beside them.
        self._drops_ones = False
        self._kept: dict[Buffer, list[int]] = {}

    def _symbol(self, name: str, value: Dim) -> Dim:
        made = sizes.symbol(f"general {name}")
        self.values[sizes.variable(made)] = value
        return made

    def _size(self, value: Dim, name: str) -> Dim:
        """A symbol for a size, the same wherever it occurs."""
        if value in (0, 1):
            return value
        found = self._symbols.get(value)
        if found is None:
            found = self._symbols[value] = self._symbol(f"{name} {len(self._symbols)}", value)
        return found

    def _variable(self, old: Dim, number: int, stem: str) -> Dim:
        """An axis with the extent that it has now."""
        if old == 0:
            return 0
        extent = self._extents.get(sizes.variable(old), extent_of(old))
        return sizes.numbered_index(extent, number, stem)

    def _body(self, body: Scalar) -> Scalar:
        for x in loads_of(body):
            self._stand_in(x.buffer, x.at)
        return rewrite(
            body, lambda x: load(self._stand_ins[x.buffer], self._at(x.buffer, x.at)), self._atoms
        )

    def _at(self, tensor: Buffer, at: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """An index into a buffer, as one into its stand-in."""
        kept = self._kept.get(tensor)
        return at if kept is None else tuple(at[k] for k in kept)

    def _stand_in(self, tensor: Buffer, at: tuple[Dim, ...]) -> Buffer:
        """What stands for a buffer: its sizes are those of the axes that walk it."""
        found = self._stand_ins.get(tensor)
        if found is not None:
            return found
        shape = tuple(self._extent(d, i) for d, i in zip(tensor.shape, at, strict=True))
        strides = self._dense(tensor, shape)
        if self._drops_ones:
            kept = self._kept[tensor] = [k for k, extent in enumerate(shape) if extent != 1]
            shape, strides = tuple(shape[k] for k in kept), tuple(strides[k] for k in kept)
        number = len(self._stand_ins)
        found = self._stand_ins[tensor] = placeholder(number, shape, tensor.dtype)
        self.actual[found] = self._canonical.buffers[tensor]
        self._strides[found] = strides
        return found

    def _extent(self, extent: Dim, at: Dim) -> Dim:
        ends = self._end(at, extent)
        return self._size(extent, "size") if ends is None else ends

    def _end(self, at: Dim, end: Dim) -> Dim | None:
        """Where an index ends that follows one axis, said with the extent of that axis.

        Of `2 * i + k - 1` over an axis of 56 and a window, 112 is twice the extent, and 111 that
        less 1. None where it has nothing to do with the extent.
        """
        axes = [atom for atom in sizes.atoms_of(at, "index") if atom in self._extents]
        if len(axes) != 1:
            return None
        linear = sizes.coefficient_of(at, axes[0])
        step, extent = (0 if linear is None else linear[0]), axes[0].arguments[0]
        if not isinstance(step, int) or step < 1:
            return None
        rest = end + extent * -step
        if not isinstance(rest, int) or abs(rest) > _NEAR:
            return None
        return self._extents[axes[0]] * step + rest

    def _dense(self, tensor: Tensor, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Strides of a stand-in: products of its extents where those of the buffer are."""
        before = self._canonical.strides[tensor]
        strides: list[Dim | None] = [None] * len(shape)
        step: Dim = 1
        made: Dim = 1
        left = [k for k in range(len(shape)) if tensor.shape[k] != 1]
        while left:
            k = next((k for k in left if before[k] == step), None)
            if k is None:
                break
            strides[k] = made
            step, made = step * tensor.shape[k], made * shape[k]
            left.remove(k)
        return tuple(
            self._stride(before[k], tensor.shape[k]) if one is None else one
            for k, one in enumerate(strides)
        )

    def _stride(self, stride: Dim, extent: Dim) -> Dim:
        return 0 if extent == 1 else self._size(stride, "stride")
