"""Results that begin with an input: only what is new is computed, behind what is there.

    present = Concat(past, new)        past (..., P, ...), new (..., n, ...)

An input and the output that continues it lie in one *growable buffer*: an array (..., C, ...) with
C >= P + n. The plan reads the growable buffer in place of the input, and writes `new` into it at
row P; both the old rows and the new ones are read there. The buffer's capacity C is a symbol of its
own. P comes from the shape of a further input that nothing reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from sardonyx.base import dtypes, sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.plan.layout import row_major
from sardonyx.plan.plan import Appended
from sardonyx.plan.reasons import Reason, Reasons
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite, substituted
from sardonyx.tensor.scalar import load
from sardonyx.tensor.tensor import Buffer, Map, Tensor, indices, make_map
from sardonyx.tensor.traverse import topological

#: Name of the pass.
INPLACE_APPEND = "inplace append"

_APPENDS = Reason("it continues an input: a session with growable buffers writes what is new alone")
_NO_PARTS = Reason("it does not begin with an input")
_TWICE = Reason("it is there twice, or continues what another output continues")
_SIZES = Reason("the axis along which it grows has a fixed length, or others depend on it")
_ALIGNED = Reason("its rows are of unknown length, or no multiple of {} bytes", 16)

#: Kernels move so many bytes at once, where rows are known to begin at multiples of them.
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a tensor is written to: a part of an input's growable buffer.

    Attributes:
        buffer: The input.
        strides: Of the tensor, in elements.
        offset: Bytes from the growable buffer's first element to the tensor's.
    """

    buffer: Buffer
    strides: tuple[Dim, ...]
    offset: Dim


def find_appended(
    inputs: Sequence[Buffer], outputs: Sequence[Tensor], reasons: Reasons | None = None
) -> list[Appended]:
    """The outputs that continue an input; each input, and what each output adds, is there once.

    Sizes behind the growing axis are numbers, so that all rows are aligned. `reasons` takes why
    each output does, or does not.
    """
    numbers = {buffer: k for k, buffer in enumerate(inputs)}
    found: dict[Buffer, Appended] = {}
    added: set[Tensor] = set()

    def refusal(k: int, tensor: Tensor) -> Reason | None:
        parts = _parts(tensor)
        if parts is None:
            return _NO_PARTS
        if outputs.count(tensor) > 1:
            return _TWICE
        past, axis = parts
        new = _added(tensor, past, axis)
        if past not in numbers:
            return _NO_PARTS
        if past in found or new in added:
            return _TWICE
        misfit = _misfit(past, axis)
        if misfit is None:
            found[past] = Appended(numbers[past], k, axis)
            added.add(new)
        return misfit

    for k, tensor in enumerate(outputs):
        reason = refusal(k, tensor)
        if reasons is not None:
            reasons.add(INPLACE_APPEND, tensor, reason or _APPENDS, changed=reason is None)
    return list(found.values())


def _parts(tensor: Tensor) -> tuple[Buffer, int] | None:
    """The buffer that comes first in a tensor, and along which axis; None if there is none."""
    if not isinstance(tensor, Map) or tensor.body.op != "select":
        return None
    condition, first, _ = tensor.body.arguments
    at = indices(tensor.shape)
    if first.op != "load" or first.at != at or not isinstance(first.tensor, Buffer):
        return None
    past = first.tensor
    differing = [k for k, (a, b) in enumerate(zip(past.shape, tensor.shape, strict=True)) if a != b]
    if len(differing) != 1 or past.constant is not None:
        return None
    (axis,) = differing
    limit = scalar.size(past.shape[axis])
    inside = scalar.size(at[axis]) < limit
    return (past, axis) if condition is inside else None


def _misfit(past: Buffer, axis: int) -> Reason | None:
    length, row = past.shape[axis], past.shape[axis + 1 :]
    atom = sizes.as_atom(length)
    if atom is None or atom.kind != "symbol" or sizes.is_measured(length):
        return _SIZES
    fixed = [d for d in row if isinstance(d, int)]
    size_bytes = math.prod(fixed) * past.dtype.size_bytes
    others = (*past.shape[:axis], *row)
    is_aligned = len(fixed) == len(row) and size_bytes > 0 and size_bytes % _ALIGNMENT == 0
    if not is_aligned:
        return _ALIGNED
    return _SIZES if any(atom in sizes.atoms_of(d) for d in others) else None


def _added(tensor: Tensor, past: Buffer, axis: int) -> Map:
    """What comes behind `past`, as a tensor of its own."""
    assert isinstance(tensor, Map)  # noqa: S101 - narrows the type for the checker
    length = past.shape[axis]
    shape = list(tensor.shape)
    shape[axis] = shape[axis] - length
    own, at = indices(tensor.shape), indices(tuple(shape))
    atoms = {
        sizes.variable(i): length + at[k] if k == axis else at[k]
        for k, i in enumerate(own)
        if i != 0
    }
    return make_map(tuple(shape), rewrite(tensor.body.arguments[2], atoms=atoms))


class InplaceAppend:
    """A graph's tensors as they are computed in growable buffers.

    Args:
        inputs: Names and buffers of the inputs.
        outputs: Names and tensors of the outputs, each once.
        appended: Which of them lie in growable buffers.

    Attributes:
        inputs: The same with growable buffers in place of inputs, then one for each length.
        outputs: The outputs that have memory of their own, then what is written into growable
        buffers.
        slots: For each tensor that is written into a growable buffer, where it lies.
    """

    def __init__(
        self,
        inputs: Sequence[tuple[str, Buffer]],
        outputs: Sequence[tuple[str, Tensor]],
        appended: Iterable[Appended],
    ) -> None:
        self.inputs, self.slots = list(inputs), dict[Tensor, Slot]()
        self._old: dict[Tensor, Tensor] = {}
        lengths: dict[Dim, str] = {}
        found: list[tuple[str, Tensor, Buffer, Appended]] = []
        for one in appended:
            name, past = inputs[one.input]
            length = past.shape[one.axis]
            capacity = sizes.symbol(f"room of {length!r}")
            shape = (*past.shape[: one.axis], capacity, *past.shape[one.axis + 1 :])
            buffer = Buffer(shape, past.dtype, past.key)
            self.inputs[one.input] = (name, buffer)
            lengths.setdefault(length, f"length {length!r}")
            self._old[past] = make_map(past.shape, load(buffer, indices(past.shape)))
            found.append((*outputs[one.output], buffer, one))
        for length, name in lengths.items():
            self.inputs.append((name, Buffer((length,), dtypes.UINT8, name)))
        # What is added may read what other growable buffers hold: producers are moved first.
        order = {t: k for k, t in enumerate(topological(t for _, t, _, _ in found))}
        in_growable_buffers = {t for _, t, _, _ in found}
        writes = []
        for name, tensor, buffer, one in sorted(found, key=lambda row: order[row[1]]):
            past, axis = inputs[one.input][1], one.axis
            (new,) = substituted([_added(tensor, past, axis)], self._old)
            length = past.shape[axis]
            strides = row_major(buffer.shape)
            step = strides[axis] * buffer.dtype.size_bytes
            self.slots[new] = Slot(buffer, strides, step * length)
            at = indices(tensor.shape)
            behind = at[axis] - length
            self._old[tensor] = make_map(
                tensor.shape, load(new, (*at[:axis], behind, *at[axis + 1 :]))
            )
            writes.append((name, new))
        kept = [(name, t) for name, t in outputs if t not in in_growable_buffers]
        moved = substituted([t for _, t in kept], self._old)
        self.outputs = [(name, t) for (name, _), t in zip(kept, moved, strict=True)] + writes

    def origins(self, given: Mapping[Tensor, tuple[str, ...]]) -> dict[Tensor, tuple[str, ...]]:
        """The nodes behind each tensor, for the tensors as they are now."""
        before = list(given)
        found = dict(zip(substituted(before, self._old), given.values(), strict=True))
        for tensor, new in self._old.items():
            if tensor in given and isinstance(new, Map):
                found.setdefault(new.body.tensor, given[tensor])
        return found
