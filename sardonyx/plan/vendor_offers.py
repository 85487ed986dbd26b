"""What a library may do in place of a kernel: an offer for each group that has such a form.

An offer says what is to be computed, in numbers that a run knows. Whoever takes it
(an `Accelerator`) is asked when the plan is made; whether it can at the sizes of a run, and how
fast, is found out then, and the kernel that computes the same is there if it cannot.
"""

from __future__ import annotations

from typing import Protocol

from sardonyx.base import dtypes, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.plan.axes import Axes, extent_of, offset_of
from sardonyx.plan.groups import Contraction
from sardonyx.plan.roles import roles
from sardonyx.plan.vendor_activation import gelu_of
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Buffer, Tensor
from sardonyx.tensor.traverse import loads_of

Strides = dict[Tensor, tuple[Dim, ...]]

#: Types whose products libraries know, with the type that they sum in.
_SUMS = {
    dtypes.FLOAT16: dtypes.FLOAT, dtypes.BFLOAT16: dtypes.FLOAT, dtypes.FLOAT: dtypes.FLOAT,
    dtypes.DOUBLE: dtypes.DOUBLE,
}  # fmt: skip

#: Axes besides rows and columns that one call goes over.
BATCHES = 4


@dataclass(frozen=True, slots=True)
class Operand:
    """Where an operand's first element lies: a buffer, and how many elements behind its start."""

    buffer: Buffer
    offset: Dim = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """Work for a library.

    Attributes:
        function: `matmul`, `convolution` or `attention`.
        facts: What is known when the plan is made, by name.
        operands: Factors and result, then bias and residual where there are any. An attention's
            factors are queries, keys and values.
        numbers: Sizes and strides in elements, in the order of `MATMUL`,
            `vendor_convolution.convolution_numbers` or `vendor_attention.ATTENTION`.
    """

    function: str
    facts: tuple[tuple[str, object], ...]
    operands: tuple[Operand, ...]
    numbers: tuple[Dim, ...]


class Accelerator(Protocol):
    """Says which offers a provider's libraries take."""

    def refusal(self, offer: Offer) -> str:
        """Why an offer is not taken; "" if it is."""


#: Names of the numbers of a matrix product: `out[b, m, n] = sum over k of left * right`, with
#: strides of the left factor, the right one and the result, and of all for each batch axis.
MATMUL = (
    "m", "n", "k", "left_m", "left_k", "right_k", "right_n", "out_m", "out_n",
    *(f"{what}_{axis}" for axis in range(BATCHES) for what in ("batch", "left", "right", "out")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OfferEpilogue:
    """The part of an epilogue that libraries know: `activation(sum + biases + residual)`.

    Attributes:
        added: Loads that are added.
        activation: `relu`, `gelu` (the one with tanh) or "".
    """

    added: tuple[Scalar, ...] = ()
    activation: str = ""

    @staticmethod
    def of(group: Contraction) -> OfferEpilogue | None:
        """The whole epilogue of a group, or None if it is of another kind.

        Libraries round once, behind it all: what is cast between is not.
        """
        kinds = result_kinds(group)
        rest, activation = uncast(group.epilogue, kinds), ""
        if rest.op == "max" and _is_zero(rest.arguments[1]):
            rest, activation = rest.arguments[0], "relu"
        elif (inner := gelu_of(rest, kinds)) is not None:
            rest, activation = inner, "gelu"
        terms = summands(rest, kinds)
        loads = [t for t in terms if t is not group.result]
        if len(terms) - len(loads) != 1 or any(t.op != "load" for t in loads):
            return None
        if any(t.tensor is group.result.tensor for t in loads):
            return None
        return OfferEpilogue(tuple(loads), activation)


def _is_zero(x: Scalar) -> bool:
    return x.op == "constant" and x.payload == 0


def uncast(x: Scalar, kinds: tuple[DType, ...]) -> Scalar:
    """What is cast, if that is a step between these types."""
    while x.op == "cast" and x.dtype in kinds and x.arguments[0].dtype in kinds:
        x = x.arguments[0]
    return x


#: A library adds up a few; what is doubled again and again would be any number.
_MOST_SUMMANDS = 64


def summands(x: Scalar, kinds: tuple[DType, ...]) -> list[Scalar]:
    """What is added up, whatever is rounded between."""
    found: list[Scalar] = []
    stack = [x]
    while stack:
        part = uncast(stack.pop(), kinds)
        if part.op == "add":
            stack.extend(reversed(part.arguments))
        else:
            found.append(part)
        if len(found) > _MOST_SUMMANDS:
            return [x]
    return found


def result_kinds(group: Contraction) -> tuple[DType, ...]:
    """The types in which libraries can give a result: the factors' own, and that of sums."""
    kind = group.left.dtype
    return kind, _SUMS.get(kind, kind)


def common_refusal(group: Contraction) -> str:
    """Why no library may compute a contraction, whatever its indices; "" if one may."""
    kind = group.left.dtype
    if kind not in _SUMS or group.accumulator is not _SUMS[kind]:
        return f"products of {kind} summed in {group.accumulator}"
    if group.right.dtype is not kind or group.result.dtype not in result_kinds(group):
        return f"products of {kind} and {group.right.dtype} that give {group.result.dtype}"
    return ""


def facts_of(
    group: Contraction, bias: bool, residual: bool, activation: str
) -> tuple[tuple[str, object], ...]:
    """The facts that all offers have."""
    return (
        ("dtype", group.left.dtype.name), ("result", group.root.buffer.dtype.name),
        ("bias", bias), ("residual", residual), ("activation", activation),
    )  # fmt: skip


class Matrices:
    """A contraction as matrix products, if its indices allow.

    Attributes:
        refusal: Why they do not; "" if they do.
        bias, residual: Added loads of each kind.
        is_cut: Whether one product has a part of the rows, or of the columns.
        operands: Factors and result.
        biases, residuals: Operands that are added.
        numbers: See `MATMUL`.
        right_is_scattered: Whether no axis of the right factor has its elements side by side.

    Args:
        group: The contraction.
        finish: What of its epilogue is to be part of it.
        strides: Of all buffers.
    """

    def __init__(self, group: Contraction, finish: OfferEpilogue, strides: Strides) -> None:
        self.group, self.finish = group, finish
        self.bias: list[Scalar] = []
        self.residual: list[Scalar] = []
        self.is_cut, self.right_is_scattered = False, group.right.op != "load"
        self.refusal = self._read(strides)

    def _read(self, strides: Strides) -> str:
        group = self.group
        found = roles(group)
        if found is None:
            return "it has no columns"
        if group.left.op != "load" or group.right.op != "load":
            return "a factor is computed where it is read"
        bodies = [group.left, group.right, *self.finish.added]
        axes = Axes((*found, group.reduced), bodies, [(group.root.buffer, group.at)])
        axes.split()
        axes.merge(strides)
        buffer, at = axes.stores[0]
        loads = axes.bodies
        tensors = [*(x.tensor for x in loads), buffer]
        places = [*(x.at for x in loads), at]
        offsets = [offset_of(strides[t], i) for t, i in zip(tensors, places, strict=True)]
        batch, rows, columns, reduced = axes.spaces
        if len(reduced) > 1:
            return "its sum goes over axes that do not lie in one row"
        variables = (*batch, *rows, *columns, *reduced)
        own = {v: [step_along(o, v) for o in offsets] for v in variables}
        if any(s is None for steps in own.values() for s in steps):
            return "an index is not linear"
        first = [origin_of(o) for o in offsets]
        column = next((c for c in columns if own[c][-1] == 1), columns[-1])
        if own[column][-1] != 1:
            return "its columns do not lie side by side"
        depth = reduced[0] if reduced else 0
        # Some axis of the left factor has its elements side by side.
        if depth == 0 or own[depth][0] != 1:
            rows = [v for v in rows if own[v][0] == 1] or rows
        row = max(rows, key=_weight, default=0)
        others = [v for v in variables if v not in (row, column, depth)]
        if len(others) > BATCHES:
            return f"it goes over {len(others) + 2} axes"
        for number, added in enumerate(self.finish.added, 2):
            self._sort(added, number, own, column)
        if len(self.bias) + len(self.residual) < len(self.finish.added) or len(self.residual) > 1:
            return "what is added is neither one row nor of the result's form"
        zeros: list[Dim | None] = [0] * len(offsets)
        of = {0: zeros, **own}
        numbers = [
            *map(length_of, (row, column, depth)), of[row][0], of[depth][0], of[depth][1],
            of[column][1], of[row][-1], of[column][-1],
        ]  # fmt: skip
        self.right_is_scattered = 1 not in (of[depth][1], of[column][1])
        self.is_cut = any(v not in batch for v in others)
        for variable in [*others, *[0] * (BATCHES - len(others))]:
            step = of[variable]
            numbers += [length_of(variable), step[0], step[1], step[-1]]
        self.numbers = tuple(n for n in numbers if n is not None)
        residual = [Operand(x.buffer, first[self._place(x)]) for x in self.residual]
        self.operands = (
            Operand(group.left.buffer, first[0]), Operand(group.right.buffer, first[1]),
            Operand(group.root.buffer, first[-1]),
        )  # fmt: skip
        self.residuals = tuple(residual)
        self.biases = tuple(Operand(x.buffer, first[self._place(x)]) for x in self.bias)
        return ""

    def _place(self, added: Scalar) -> int:
        return 2 + self.finish.added.index(added)

    def _sort(
        self, added: Scalar, number: int, own: dict[Dim, list[Dim | None]], column: Dim
    ) -> None:
        steps = {v: s[number] for v, s in own.items()}
        if added.dtype is not self.group.root.buffer.dtype:
            return
        if all(s == (1 if v is column else 0) for v, s in steps.items()):
            self.bias.append(added)
        elif all(s == own[v][-1] for v, s in steps.items()):
            self.residual.append(added)


def _weight(variable: Dim) -> tuple[bool, int]:
    """To find the axis that is probably the longest: symbols count for more than numbers."""
    extent = extent_of(variable)
    return not isinstance(extent, int), extent if isinstance(extent, int) else 0


def length_of(variable: Dim) -> Dim:
    """How many values a variable has; 1 for the 0 of an axis of extent 1."""
    return 1 if variable == 0 else extent_of(variable)


def step_along(offset: Dim, variable: Dim) -> Dim | None:
    """Elements per step along an axis; None if that depends on where one is."""
    if variable == 0:
        return 0
    found = sizes.coefficient_of(offset, sizes.variable(variable))
    if found is None or sizes.atoms_of(found[0], "index") or sizes.atoms_of(found[0], "opaque"):
        return None
    return found[0]


def origin_of(offset: Dim) -> Dim:
    """An offset where all index variables are 0."""
    for atom in sizes.atoms_of(offset, "index"):
        found = sizes.coefficient_of(offset, atom)
        if found is not None:
            offset = found[1]
    return offset


def is_constant(x: Scalar) -> bool:
    """Whether an expression reads what never changes."""
    return all(isinstance(y.tensor, Buffer) and y.tensor.constant is not None for y in loads_of(x))
