"""What lowerings read out of tensors: sizes, counts and axes, which a run may have to measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sardonyx.base import errors, sizes
from sardonyx.base.dtypes import INT32, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.scalars import check_list
from sardonyx.tensor.assumptions import assume_equal
from sardonyx.tensor.elementwise import clip
from sardonyx.tensor.measuring import LARGEST, SMALLEST, measure
from sardonyx.tensor.reshaping import reshape
from sardonyx.tensor.symbolic import ELEMENTS_LIMIT, elements_of, partial_elements_of
from sardonyx.tensor.tensor import Buffer, Tensor
from sardonyx.tensor.traverse import topological

if TYPE_CHECKING:
    from sardonyx.ir.node import Node
    from sardonyx.ir.value import Value

#: Elements of one list that a run measures at most: a Split has as many results.
MOST_MEASURED = 1024
#: Elements of a constant that become sizes at most.
_LONGEST = 1 << 16

#: Types of tensors that hold sizes.
_SIZE_TYPES = (INT64, INT32)


class DecidedByData(Exception):
    """Only a run knows how many axes there are.

    Attributes:
        node: The name of the node that must know it.
    """

    def __init__(self, what: str, node: str = "") -> None:
        super().__init__(what)
        self.node = node


class DataDependent(DecidedByData):
    """A lowering needs the contents of a tensor that only a run knows.

    Attributes:
        tensor: The tensor.
        values: The inputs of the node that it is made of, once `asked_by` was called; `node` is
            known then, too.
    """

    def __init__(self, tensor: Tensor, what: str) -> None:
        super().__init__(f"{what}: known only in a run")
        self.tensor = tensor
        self.values: tuple[Value, ...] = ()

    def asked_by(self, node: Node, inputs: Sequence[Tensor | None]) -> None:
        """Note which inputs of the node the tensor is made of."""
        self.node = node.name
        made_of = set(topological([self.tensor]))
        pairs = zip(node.inputs, inputs, strict=False)
        self.values = tuple(v for v, x in pairs if v is not None and x in made_of)


class ChangingRank(DecidedByData):
    """Iterations of a loop carry tensors of different numbers of axes."""


def decided_by_data(error: BaseException) -> DecidedByData | None:
    """What of the number of axes only a run knows, if an error is about that."""
    link: BaseException | None = error
    while link is not None and not isinstance(link, DecidedByData):
        link = link.__cause__
    return link


def depends_on_data(node: Node, reason: DataDependent) -> errors.NotImplemented:
    """The error for a node whose result has no known number of axes."""
    what = f"A shape depends on data: {reason}"
    names = ", ".join(dict.fromkeys(value.name for value in reason.values))
    length = sizes.product(reason.tensor.shape)
    if isinstance(length, int) and length > MOST_MEASURED:
        what, do = f"A list of sizes is too long: {reason}", f"Make {names} constant, or shorter"
        expected, got = f"at most {MOST_MEASURED} elements", str(length)
        return errors.NotImplemented(message(node.where, what, expected=expected, got=got, do=do))
    do = f"Let the number of elements of {names} follow from the inputs' shapes"
    if isinstance(length, int):
        do = f"Make {names} constant"
    do = do if names else ""
    return errors.NotImplemented(message(node.where, what, do=do))


def with_length(x: Tensor, count: int, what: str) -> Tensor:
    """A list, taken to have `count` elements if only a run knows how many there are.

    A run with another number is refused.
    """
    if x.rank != 1 or isinstance(x.shape[0], int):
        return x
    assume_equal(count, x.shape[0], what, "Another number of elements is needed")
    return reshape(x, (count,))


def contents(
    x: Tensor,
    what: str = "The content of an input",
    low: Dim = SMALLEST,
    high: Dim = LARGEST,
    *,
    nearest: bool = False,
    most: int | None = None,
) -> tuple[Any, ...]:
    """The elements of a small list of whole numbers, or one number; they may be symbolic.

    Those that only a run knows are measured while it goes on; those below `low` or above
    `high` are refused then. With `nearest`, those beyond what sizes can be are taken to the
    nearest size instead: the bounds of a Slice may be any numbers.
    `most` is `sizes.MOST_AXES` where each element becomes an axis.

    Raises:
        InvalidGraph: The tensor is of another type, or no list, or has more than `most` elements.
        DataDependent: Only a run knows them, and they cannot be measured.
    """
    if x.rank > 1:
        check_list(x, what)
    if not x.dtype.is_integer:
        kind = x.dtype.name
        raise InvalidGraph(message(what, "It needs whole numbers", expected="int64", got=kind))
    length = sizes.product(x.shape)
    if isinstance(length, int) and most is not None and length > most:
        why = "Each of its elements makes an axis, and no array has so many"
        do = "Let it have one element for each axis of the result"
        expected = f"at most {most} elements"
        raise InvalidGraph(message(what, why, expected=expected, got=str(length), do=do))
    found = _of_constant(x) or partial_elements_of(x)
    if not nearest:
        for e in found or ():
            _check_bounds(e, what, low, high)
    if found is not None and None not in found:
        return found
    if not isinstance(length, int) or length > MOST_MEASURED or x.dtype not in _SIZE_TYPES:
        raise DataDependent(x, what)
    known = found or (None,) * length
    unknown = tuple(k for k, e in enumerate(known) if e is None)
    if nearest and x.dtype is INT64:
        x = clip(x, SMALLEST, LARGEST)
    symbols = measure(x, unknown, low, high)
    if symbols is None:
        raise DataDependent(x, what)
    at = dict(zip(unknown, symbols, strict=True))
    return tuple(at.get(k, e) for k, e in enumerate(known))


def _of_constant(x: Tensor) -> tuple[int, ...] | None:
    """The elements of a constant list that is too long to be looked into otherwise."""
    length = sizes.product(x.shape)
    if not isinstance(length, int) or not ELEMENTS_LIMIT < length <= _LONGEST:
        return None
    if not isinstance(x, Buffer) or x.constant is None or x.dtype not in _SIZE_TYPES:
        return None
    array = x.constant.array()  # type: ignore[attr-defined]  # a constant's buffer has one
    return tuple(array.reshape(-1).tolist())


def _check_bounds(element: object, what: str, low: Dim, high: Dim) -> None:
    """Refuse a known number outside bounds that were asked for: not all numbers become sizes."""
    if not isinstance(element, int):
        return
    below = isinstance(low, int) and low != SMALLEST and element < low
    above = isinstance(high, int) and high != LARGEST and element > high
    if below or above:
        expected = f"at least {low}" if below else f"at most {high}"
        raise InvalidGraph(
            message(what, "It is out of bounds", expected=expected, got=f"{element}")
        )


def integers(x: Tensor, what: str = "The content of an input") -> tuple[int, ...]:
    """The elements of a small tensor that must be plain numbers, such as axes.

    Raises:
        DataDependent: Only a run knows them.
    """
    found = _of_constant(x) or elements_of(x)
    if found is None or not all(isinstance(e, int) for e in found):
        raise DataDependent(x, what)
    return found  # type: ignore[return-value]  # all were seen to be numbers
