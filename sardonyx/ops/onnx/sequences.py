"""Sequences and optionals (ONNX operator spec, Sequence*, Optional*).

Where the model says of what a sequence is made (SequenceConstruct, SplitToSequence), what reads
an item reads the tensor itself, and no sequence is ever made. Others live on the host.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import dtypes, errors
from sardonyx.base.dtypes import BOOL, INT64, DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.object_types import ElementShape, ObjectType, join, object_type
from sardonyx.base.sizes import Dim
from sardonyx.ir.types import ValueType
from sardonyx.ops.core.lists import Slices, items_of, split_sequence
from sardonyx.ops.core.object_values import (
    call_for_inside,
    call_for_object,
    call_for_tensor,
    container_of,
    element_shape,
    object_of,
)
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.tensor.host import CONSTRUCT, Result, call_behind, host_call, is_object
from sardonyx.tensor.language import assume_equal, concat, known_tensor, normalise_axis, split
from sardonyx.tensor.symbolic import elements_of
from sardonyx.tensor.tensor import Map, Tensor

_OBJECTS = ("objects", "strings")
#: Sequences of more items are not taken apart by name.
_MOST_ITEMS = 1024


def as_sequence(x: Tensor, operator: str) -> tuple[Tensor, ObjectType]:
    """An input that must be a sequence, perhaps one that is optional, and its type.

    Raises:
        InvalidGraph: It is something else.
    """
    if isinstance(x.dtype, ObjectType) and x.dtype.form == "optional":
        x = optional_get_element_15(x)
    return x, object_of(x, "sequence", operator)


def construct(items: Sequence[Tensor], dtype: ObjectType | None = None) -> Tensor:
    """A sequence of these."""
    whole = container_of("sequence", list(items)) if dtype is None else dtype
    return call_for_object(CONSTRUCT, list(items), whole)


def _known_position(
    position: Tensor | None, count: int, operator: str, more: int = 0
) -> int | None:
    """A position counted from the start, where it is known; by default the last one."""
    if position is None:
        return count - 1 + more
    position = scalar_of(position, operator)
    found = elements_of(position)
    if found is None or len(found) != 1 or not isinstance(found[0], int):
        return None
    place = found[0] + count if found[0] < 0 else found[0]
    if not 0 <= place < count + more:
        what = f"The sequence has {count} items"
        raise InvalidGraph(message(operator, what, got=f"position {found[0]}"))
    return place


@op("SequenceConstruct", 11, flags=_OBJECTS)
def sequence_construct_11(*items: Tensor) -> Tensor:
    """A sequence of the inputs."""
    return construct(items)


@op("SequenceEmpty", 11)
def sequence_empty_11(*, dtype: int = dtypes.FLOAT.onnx_id) -> Tensor:
    """A sequence without items."""
    element = dtypes.BY_ONNX_ID.get(dtype)
    if element is None:
        raise InvalidGraph(message("SequenceEmpty", f"There is no element type {dtype}"))
    return construct((), object_type("sequence", element, None, vacant=True))


@op("SequenceLength", 11, flags=_OBJECTS)
def sequence_length_11(sequence: Tensor) -> Tensor:
    """How many items there are."""
    sequence, _ = as_sequence(sequence, "SequenceLength")
    items = items_of(sequence)
    if items is not None:
        return known_tensor((len(items),), (), INT64)
    slices = Slices.behind(sequence)
    if slices is not None:
        return slices.length()
    return host_call("sequence.length", [sequence], [Result(INT64)])[0]


@op("SequenceAt", 11, flags=_OBJECTS)
def sequence_at_11(sequence: Tensor, position: Tensor) -> Tensor:
    """One item."""
    sequence, whole = as_sequence(sequence, "SequenceAt")
    items = items_of(sequence)
    if items is not None:
        place = _known_position(position, len(items), "SequenceAt")
        if place is not None:
            return items[place]
    slices = Slices.behind(sequence)
    if slices is not None:
        return slices.at(position)
    return call_for_inside("sequence.at", [sequence, position], _filled(whole))


def _filled(whole: ObjectType) -> ObjectType:
    """A type for what is inside even if nothing is: who looks there gets an error in the run."""
    if not whole.vacant or isinstance(whole.element, ObjectType):
        return whole
    return object_type(whole.form, whole.element, (), key=whole.key)


@op("SequenceInsert", 11, flags=_OBJECTS)
def sequence_insert_11(sequence: Tensor, item: Tensor, position: Tensor | None = None) -> Tensor:
    """The sequence with one more item."""
    sequence, whole = as_sequence(sequence, "SequenceInsert")
    joined = _joined(whole, item, "SequenceInsert")
    items = items_of(sequence)
    if items is not None and len(items) < _MOST_ITEMS:
        place = _known_position(position, len(items), "SequenceInsert", 1)
        if place is not None:
            return construct((*items[:place], item, *items[place:]), joined)
    return call_for_object("sequence.insert", [sequence, item, position], joined)


def _joined(whole: ObjectType, item: Tensor, operator: str) -> ObjectType:
    if whole.element is not item.dtype and not isinstance(item.dtype, ObjectType):
        what = "The item has another type than those of the sequence"
        expected, got = str(whole.element), str(item.dtype)
        raise InvalidGraph(message(operator, what, expected=expected, got=got))
    one = object_type("sequence", whole.element, None, vacant=True)
    start = whole if not whole.vacant else one
    shape: ElementShape = None if is_object(item) else element_shape(item.shape)
    added = object_type("sequence", item.dtype, shape)
    joined = join(start, added)
    if not isinstance(joined, ObjectType):
        raise InvalidGraph(message(operator, "The item has another type than the others"))
    return joined


@op("SequenceErase", 11, flags=_OBJECTS)
def sequence_erase_11(sequence: Tensor, position: Tensor | None = None) -> Tensor:
    """The sequence without one item."""
    sequence, whole = as_sequence(sequence, "SequenceErase")
    items = items_of(sequence)
    if items:
        place = _known_position(position, len(items), "SequenceErase")
        if place is not None:
            return construct((*items[:place], *items[place + 1 :]), whole)
    return call_for_object("sequence.erase", [sequence, position], whole)


@op("SplitToSequence", 11, 24, flags=("strings",))
def split_to_sequence_11(
    x: Tensor, split_: Tensor | None = None, *, axis: int = 0, keepdims: int = 1
) -> Tensor:
    """Slices along an axis."""
    axis = normalise_axis(axis, x.rank, "SplitToSequence")
    lengths = _known_lengths(x.shape[axis], split_)
    drop = split_ is None and not keepdims
    if lengths is not None and len(lengths) <= _MOST_ITEMS:
        parts = split(x, axis, lengths) if lengths else ()
        if drop:
            parts = tuple(p.reshape(*p.shape[:axis], *p.shape[axis + 1 :]) for p in parts)
        if parts:
            return construct(parts)
    each = 1 if split_ is None else _length_of_each(split_)
    shape: list[int | None] = [d if isinstance(d, int) else None for d in x.shape]
    shape[axis] = each
    if drop:
        del shape[axis]
    dtype = object_type("sequence", x.dtype, tuple(shape))
    if split_ is None or (each == 1 and split_.rank == 0):
        return split_sequence(x, axis, not drop, dtype)
    if each == 1:
        what = "The lengths do not make up the axis"
        assume_equal(split_.shape[0], x.shape[axis], "SplitToSequence", what)
        return split_sequence(x, axis, True, dtype)
    return call_for_object("sequence.split", [x, split_], dtype, axis=axis, keepdims=bool(keepdims))


def _length_of_each(split: Tensor) -> int | None:
    """How long all parts are, if that is known and one number, however many they are.

    Of several, a scalar's last part may be a shorter one.
    """
    body = split.body if isinstance(split, Map) else None
    if body is not None and body.op == "constant":
        every: set[object] = {body.payload}
    else:
        every = set(elements_of(split) or ())
    each = every.pop() if len(every) == 1 else None
    if not isinstance(each, int) or each <= 0:
        return None
    return each if split.rank == 1 or each == 1 else None


def _known_lengths(size: Dim, split: Tensor | None) -> tuple[int, ...] | None:
    """How long each part is, where that is known."""
    if split is None:
        return (1,) * size if isinstance(size, int) and size <= _MOST_ITEMS else None
    found = elements_of(split)
    if found is None or not isinstance(size, int):
        return None
    lengths = [n for n in found if isinstance(n, int)]
    if len(lengths) != len(found):
        return None
    if split.shape:
        return tuple(lengths)
    (step,) = lengths
    if step <= 0:
        what = "The length of a part must be positive"
        raise InvalidGraph(message("SplitToSequence", what, got=str(step)))
    if size > step * _MOST_ITEMS:
        return None
    return tuple(min(step, size - k) for k in range(0, size, step))


@op("ConcatFromSequence", 11, flags=_OBJECTS)
def concat_from_sequence_11(sequence: Tensor, *, axis: int, new_axis: int = 0) -> Tensor:
    """The items as one tensor, along an axis that they have or a new one."""
    sequence, whole = as_sequence(sequence, "ConcatFromSequence")
    items = items_of(sequence)
    if items:
        rank = items[0].rank
        at = normalise_axis(axis, rank + bool(new_axis), "ConcatFromSequence")
        if all(x.rank == rank for x in items):
            parts = [_with_axis(x, at) for x in items] if new_axis else list(items)
            return concat(parts, at)
    slices = Slices.behind(sequence)
    if slices is not None:
        rank = len(whole.shape or ()) + bool(new_axis)
        at = normalise_axis(axis, rank, "ConcatFromSequence")
        whole_tensor = slices.stacked(at) if new_axis else slices.joined(at)
        if whole_tensor is not None:
            return whole_tensor
    shape = _filled(whole).shape
    if shape is None or isinstance(whole.element, ObjectType):
        what = f"The type of {whole.name} does not say how many axes its tensors have"
        raise errors.NotImplemented(message("ConcatFromSequence", what))
    rank = len(shape) + bool(new_axis)
    if not rank:
        raise InvalidGraph(message("ConcatFromSequence", "Scalars have no axis to join along"))
    at = normalise_axis(axis, rank, "ConcatFromSequence")
    result: list[int | None] = list(shape)
    if new_axis:
        result.insert(at, None)
    else:
        result[at] = None
    return call_for_tensor(
        "sequence.concat", [sequence], whole.element, tuple(result), axis=at,
        new_axis=bool(new_axis),
    )  # fmt: skip


def _with_axis(x: Tensor, axis: int) -> Tensor:
    return x.reshape(*x.shape[:axis], 1, *x.shape[axis:])


# -- optionals --------------------------------------------------------------------------------


@op("Optional", 15, flags=_OBJECTS)
def optional_15(
    x: Tensor | None = None,
    *,
    type: ValueType | None = None,  # noqa: A002 - ONNX's name
) -> Tensor:
    """A value, or the absence of one."""
    if x is not None:
        return call_for_object("optional.wrap", [x], container_of("optional", [x]))
    inside: DType | None = type.as_dtype() if type is not None else None
    if inside is None:
        raise InvalidGraph(message("Optional", "Neither a value nor a type is given"))
    return call_for_object("optional.wrap", [], object_type("optional", inside, vacant=True))


@op("OptionalHasElement", 15, 18, flags=_OBJECTS)
def optional_has_element_15(x: Tensor | None = None) -> Tensor:
    """Whether there is a value."""
    if x is None:
        return known_tensor((False,), (), BOOL)
    if not isinstance(x.dtype, ObjectType) or x.dtype.form != "optional":
        return known_tensor((True,), (), BOOL)
    made = call_behind(x, "optional.wrap")
    if made is not None:
        return known_tensor((bool(made[0].operands),), (), BOOL)
    return host_call("optional.has_element", [x], [Result(BOOL)])[0]


@op("OptionalGetElement", 15, 18, flags=_OBJECTS)
def optional_get_element_15(x: Tensor) -> Tensor:
    """The value."""
    if not isinstance(x.dtype, ObjectType) or x.dtype.form != "optional":
        return x
    made = call_behind(x, "optional.wrap")
    if made is not None and made[0].operands:
        return made[0].operands[0]
    return call_for_inside("optional.get_element", [x], _filled(x.dtype))
