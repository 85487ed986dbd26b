"""Sequences, optionals and maps as lowerings see them: scalars of an object type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sardonyx.base import errors
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.object_types import ElementShape, ObjectType, join, object_type
from sardonyx.base.sizes import Dim
from sardonyx.ir.value import Value
from sardonyx.ops.core.contents import contents
from sardonyx.tensor.elementwise import compute
from sardonyx.tensor.host import Result, host_call, take
from sardonyx.tensor.scalar import load
from sardonyx.tensor.tensor import Buffer, Shape, Tensor, buffer


def object_buffer(value: Value, key: object) -> Buffer:
    """A value that is no tensor and comes from outside.

    Raises:
        NotImplemented: Its type is not declared in full, or is one of opaque values.
    """
    dtype = declared_dtype(value)
    return buffer(key, (), dtype)


def declared_dtype(value: Value) -> DType:
    """The type that the file declares, of a tensor's elements or of the value as a whole.

    Raises:
        NotImplemented: See `object_buffer`.
    """
    dtype = value.type.as_dtype() if value.kind != "tensor" and value.type else value.dtype
    if dtype is None:
        what = f"Its type, {value.type or value.kind}, is not supported or not declared in full"
        raise errors.NotImplemented(message(f"value {value.name}", what))
    return dtype


def element_shape(shape: Shape) -> ElementShape:
    """What is always true of the sizes of an item."""
    return tuple(d if isinstance(d, int) else None for d in shape)


def container_of(form: str, items: list[Tensor]) -> ObjectType:
    """The type of a sequence or an optional of these.

    Raises:
        InvalidGraph: They are of different types.
    """
    whole: DType | None = None
    for x in items:
        shape = None if isinstance(x.dtype, ObjectType) else element_shape(x.shape)
        one = object_type(form, x.dtype, shape)
        whole = one if whole is None else join(whole, one)
        if whole is None:
            what = f"The items of a {form} are of different types"
            raise InvalidGraph(message(form, what, got=", ".join(str(i.dtype) for i in items)))
    assert isinstance(whole, ObjectType)  # noqa: S101 - callers give one item or more
    return whole


def object_of(x: Tensor, form: str, operator: str) -> ObjectType:
    """The type of an input that must be a sequence, an optional or a map.

    Raises:
        InvalidGraph: It is something else.
    """
    if not isinstance(x.dtype, ObjectType) or x.dtype.form != form:
        got = x.dtype.type_text
        raise InvalidGraph(message(operator, "An input has the wrong type", expected=form, got=got))
    return x.dtype


def call_for_object(
    function: str, operands: list[Tensor | None], dtype: ObjectType, **facts: object
) -> Tensor:
    """A sequence or the like that a function on the host gives."""
    return host_call(function, operands, [Result(dtype)], **facts)[0]


def call_for_inside(
    function: str, operands: list[Tensor | None], whole: ObjectType, **facts: object
) -> Tensor:
    """What a function gives that is inside a sequence or an optional: a tensor, or an object."""
    if isinstance(whole.element, ObjectType):
        return host_call(function, operands, [Result(whole.element)], **facts)[0]
    if whole.shape is None:
        text = "does not say how many axes its tensors have"
        what = f"The type of {whole.name} {text}"
        raise errors.NotImplemented(message(function, what, do="Declare it in the model"))
    return call_for_tensor(function, operands, whole.element, whole.shape, **facts)


#: A shape with None for sizes that only the host knows.
HostShape: TypeAlias = tuple[Dim | None, ...]


def call_for_tensor(
    function: str,
    operands: list[Tensor | None],
    dtype: DType,
    shape: HostShape | None,
    **facts: object,
) -> Tensor:
    """A tensor that a function on the host gives, with None for each size that only it knows."""
    assert shape is not None  # noqa: S101 - narrows the type for the checker
    known: list[Dim] = [d for d in shape if d is not None]
    if len(known) == len(shape):
        return host_call(function, operands, [Result(dtype, tuple(known))], **facts)[0]
    return calls_for_tensors(function, operands, [(dtype, shape)], **facts)[0]


def calls_for_tensors(
    function: str,
    operands: list[Tensor | None],
    tensors: Sequence[tuple[DType, HostShape | None]],
    **facts: object,
) -> tuple[Tensor, ...]:
    """Tensors that one call gives, whose sizes only it knows, as `call_for_tensor`."""
    results = [Result(dtype, (0,) * len(shape or ()), held=True) for dtype, shape in tensors]
    calls = host_call(function, operands, results, **facts)
    return tuple(
        _taken(held, dtype, shape or ())
        for held, (dtype, shape) in zip(calls, tensors, strict=True)
    )


def _taken(held: Tensor, dtype: DType, shape: HostShape) -> Tensor:
    """The tensor behind what a call gives of it: a number, and its sizes."""
    number = compute((), lambda: load(held, (0,)))
    sizes: tuple[Dim, ...] = ()
    if shape:
        listed = compute((len(shape),), lambda k: load(held, (k + 1,)))
        sizes = contents(listed, "A shape", 0)
    known = zip(sizes, shape, strict=True)
    return take(number, dtype, tuple(m if d is None else d for m, d in known))
