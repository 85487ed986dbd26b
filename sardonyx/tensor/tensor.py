"""Tensors of the tensor language: what a whole array is, element by element.

Every tensor is one of
- `Buffer`: given from outside (a feed, a weight, the result of an earlier kernel);
- `Map`: element at (i0, i1, ...) is `body`;
- `Reduce`: element is a reduction of `body` over (r0, r1, ...);
- `Contract`: element is the sum over (r0, ...) of `left * right`: products, convolutions, einsum;
- `Call`: one output of a kernel program that has loops of its own.

Index variables are numbered by axis, so tensors of equal structure are the same object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sardonyx.base import errors, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import message
from sardonyx.base.interning import WeakTable
from sardonyx.base.records import dataclass
from sardonyx.base.remembering import remembering
from sardonyx.base.sizes import Dim
from sardonyx.tensor.noted_checks import may_refuse, note_check
from sardonyx.tensor.operators import Operators

if TYPE_CHECKING:
    from sardonyx.tensor.scalar import Scalar

Shape = tuple[Dim, ...]
_T = TypeVar("_T", bound="Tensor")

#: Ways to reduce. `argmin` and `argmax` give the int64 position along the one reduced axis, of the
#: first extreme (`argmin_last`, `argmax_last`: of the last one).
REDUCTIONS = frozenset("sum prod min max argmin argmax argmin_last argmax_last".split())


@remembering(1 << 14)
def indices(shape: Shape) -> tuple[Dim, ...]:
    """The index variables of the axes of `shape`; 0 for an axis of extent 1."""
    return tuple(sizes.numbered_index(d, k, "i") for k, d in enumerate(shape))


@remembering(1 << 14)
def reduced_indices(extents: Shape) -> tuple[Dim, ...]:
    """The index variables of reduced axes with these extents; 0 for an extent of 1."""
    return tuple(sizes.numbered_index(d, k, "r") for k, d in enumerate(extents))


@dataclass(eq=False, slots=True, weakref_slot=True)
class Tensor(Operators):
    """An array: shape, element type, and what it is. See the module's text."""

    shape: Shape
    dtype: DType

    @property
    def label(self) -> str:
        """A short name for printing."""
        return f"t{id(self) & 0xFFFF:x}"

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def scalar_value(self) -> float | int | bool | None:
        """The number, where the tensor is a known constant of one element."""
        return None

    @property
    def elements(self) -> tuple[Dim, ...] | None:
        """Row-major integer contents, where they are known before a run."""
        return None


@dataclass(eq=False, slots=True)
class Buffer(Tensor):
    """An array given from outside, identified by `key` (a graph value, or anything hashable)."""

    key: object
    value: float | int | bool | None = None
    #: Row-major contents, None for an element that is not known.
    known: tuple[Dim | None, ...] | None = None
    #: The constant array behind it (`ir` Constant), when the contents never change.
    constant: object = None
    #: Whether something is checked where it is computed: see `tensor.checked`.
    is_checked: bool = False

    @property
    def label(self) -> str:
        """Its name."""
        return str(getattr(self.key, "name", self.key))

    @property
    def scalar_value(self) -> float | int | bool | None:
        """The number, where it is a known constant of one element."""
        return self.value

    @property
    def elements(self) -> tuple[Dim, ...] | None:
        """Row-major integer contents, where all are known before a run."""
        return complete(self.known)


def complete(known: tuple[Dim | None, ...] | None) -> tuple[Dim, ...] | None:
    """The elements of a tensor if all are known, else None."""
    if known is None:
        return None
    found = tuple(e for e in known if e is not None)
    return found if len(found) == len(known) else None


@dataclass(eq=False, slots=True)
class Map(Tensor):
    """Element at `indices(shape)` is `body`."""

    body: Scalar

    def __repr__(self) -> str:
        return f"Map{list(self.shape)}:{self.dtype} = {self.body!r}"


@dataclass(eq=False, slots=True)
class Reduce(Tensor):
    """Element is the reduction `kind` of `body` over index variables with `extents`."""

    kind: str
    extents: Shape
    body: Scalar

    def __repr__(self) -> str:
        head = f"Reduce.{self.kind}{list(self.shape)}:{self.dtype}"
        return f"{head} over {list(self.extents)} = {self.body!r}"


@dataclass(eq=False, slots=True)
class Contract(Tensor):
    """Element is the sum over index variables with `extents` of `left * right`, in `accumulator`.

    `left` and `right` may be any expressions; fast forms exist where they are loads with affine
    indices, perhaps under a `select` against zero (a window that hangs over the edge).
    """

    extents: Shape
    left: Scalar
    right: Scalar
    accumulator: DType

    def __repr__(self) -> str:
        head = f"Contract{list(self.shape)}:{self.dtype}"
        return f"{head} over {list(self.extents)} = {self.left!r} * {self.right!r}"


@dataclass(eq=False, slots=True)
class Call(Tensor):
    """Output number `output` of the special kernel `kernel` applied to `operands`.

    Calls with the same `invocation` are outputs of one.
    """

    kernel: str
    operands: tuple[Tensor, ...]
    attributes: tuple[tuple[str, object], ...]
    output: int
    all_outputs: tuple[tuple[Shape, DType], ...]

    @property
    def invocation(self) -> tuple[object, ...]:
        """What the outputs of one invocation have in common, and no others."""
        return self.kernel, self.operands, self.attributes, self.all_outputs

    def attribute(self, name: str) -> object:
        """A compile-time fact given by the lowering."""
        return dict(self.attributes)[name]

    def integer(self, name: str) -> int:
        """Such a fact that is a whole number."""
        found = self.attribute(name)
        assert isinstance(found, int)  # noqa: S101 - lowerings check attributes before
        return found

    def __repr__(self) -> str:
        return f"Call.{self.kernel}#{self.output}{list(self.shape)}:{self.dtype}"


# Weak, so that the weights behind a model's tensors go when the model does.
_TENSORS: WeakTable[object, Tensor] = WeakTable()


def _intern(key: object, tensor: _T) -> _T:
    found = _TENSORS.get(key)
    if found is None:
        found = _TENSORS.add(key, tensor)
    return found  # type: ignore[return-value]  # interned under a key of its class


def buffer(
    key: object,
    shape: Shape,
    dtype: DType,
    *,
    value: float | int | bool | None = None,
    known: tuple[Dim | None, ...] | None = None,
    constant: object = None,
    is_checked: bool = False,
) -> Buffer:
    """An array from outside. Not interned: make one per value and keep it."""
    return Buffer(shape, dtype, key, value, known, constant, is_checked)


def make_map(shape: Shape, body: Scalar) -> Map:
    """The tensor whose element at `indices(shape)` is `body`."""
    key = ("map", shape, body)
    found = _TENSORS.get(key)
    if found is None:
        found = _TENSORS.add(key, Map(shape, body.dtype, body))
    return found  # type: ignore[return-value]  # interned under a key of its class


def _require_real(body: Scalar, what: str) -> None:
    if body.dtype.is_complex:
        raise errors.NotImplemented(message(what, f"There is no such reduction of {body.dtype}"))


def make_reduce(shape: Shape, extents: Shape, kind: str, body: Scalar, dtype: DType) -> Reduce:
    """The tensor whose element is `body` reduced over `reduced_indices(extents)`."""
    _require_real(body, kind)
    key = ("reduce", shape, extents, kind, body, dtype)
    return _intern(key, Reduce(shape, dtype, kind, extents, body))


def make_contract(
    shape: Shape, extents: Shape, left: Scalar, right: Scalar, dtype: DType, accumulator: DType
) -> Contract:
    """The tensor whose element is the sum of `left * right` over `reduced_indices(extents)`."""
    _require_real(left, "contract")
    key = ("contract", shape, extents, left, right, dtype, accumulator)
    return _intern(key, Contract(shape, dtype, extents, left, right, accumulator))


def make_call(
    kernel: str,
    operands: tuple[Tensor, ...],
    outputs: tuple[tuple[Shape, DType], ...],
    **attributes: object,
) -> tuple[Call, ...]:
    """All outputs of one invocation of a special kernel."""
    facts = tuple(sorted(attributes.items()))
    if may_refuse(kernel, operands, outputs):
        note_check(kernel)
    return tuple(
        _intern(
            ("call", kernel, operands, facts, k, outputs),
            Call(shape, dtype, kernel, operands, facts, k, outputs),
        )
        for k, (shape, dtype) in enumerate(outputs)
    )
