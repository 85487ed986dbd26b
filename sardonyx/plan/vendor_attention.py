"""Attentions as libraries know them: queries, keys and values in heads, a scale, a mask.

What is added to the scores, and which of them are replaced, becomes one array with as many axes as
it changes along. A mask that hides keys behind each query (causal) is known by its comparison.
"""

from __future__ import annotations

import math

from sardonyx.base import dtypes, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.plan.axes import Axes, extent_of, offset_of
from sardonyx.plan.groups import Attention
from sardonyx.plan.roles import index_atoms
from sardonyx.plan.vendor_offers import (
    Operand,
    Strides,
    length_of,
    origin_of,
    step_along,
    summands,
    uncast,
)
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar, whole_number

#: Names of an attention's numbers: sizes, then strides along batch, head and line of each operand.
#: What is added has a stride of 0 along axes that it does not change along.
ATTENTION = (
    "batch", "heads", "key_heads", "rows", "keys", "depth", "width",
    "left_batch", "left_head", "left_row", "right_batch", "right_head", "right_key",
    "values_batch", "values_head", "values_key", "out_batch", "out_head", "out_row",
    "bias_batch", "bias_head", "bias_row", "bias_key",
)  # fmt: skip

#: Which keys a query sees: all, those not behind it counted from the first, or from the last.
CAUSAL = ("", "first", "last")

_HALVES = (dtypes.FLOAT16, dtypes.BFLOAT16)
#: A finite number that hides a score which it is put in the place of, or added to.
_HIDES = -1e30


@dataclass(frozen=True, slots=True)
class Scores:
    """What happens to the scores of an attention before its softmax.

    Attributes:
        scale: What sums are multiplied with.
        causal: One of `CAUSAL`.
        bias: What is added to them, an expression over batches, row and key; None for nothing.
    """

    scale: float
    causal: str
    bias: Scalar | None

    @staticmethod
    def of(group: Attention) -> Scores | str:
        """What a group does to its scores, or why no library does that."""
        kinds = (dtypes.FLOAT, group.query.dtype)
        causal, terms, hidden = "", list[Scalar](), list[tuple[Scalar, Scalar]]()
        body = uncast(group.scores, kinds)
        while body.op == "select" and _is_low(body.arguments[2]):
            test, inner, low = body.arguments
            found = _causal(test, group)
            if found and not causal and low.payload == -math.inf:
                causal = found
            elif group.score in _parts(test):
                return "a score decides whether it counts"
            elif low.payload == -math.inf and not group.guarded:
                # Of a query that sees no key libraries make zeros.
                return "keys are hidden by minus infinity"
            else:
                hidden.append((test, low))
            body = uncast(inner, kinds)
        scaled: Scalar | None = None
        for term in summands(body, kinds):
            if group.score not in _parts(term):
                terms.append(term)
            elif scaled is not None:
                return "its scores are added to themselves"
            else:
                scaled = term
        found_scale = _scale_of(scaled, group.score, kinds) if scaled is not None else None
        if found_scale is None:
            return "more than a factor and a sum changes its scores"
        bias: Scalar | None = None
        for term in terms:
            wide = scalar.cast(term, dtypes.FLOAT)
            bias = wide if bias is None else bias + wide
        for test, low in hidden:
            shown, kind = bias, dtypes.FLOAT
            if shown is None:
                kind = group.query.dtype if low.payload == -math.inf else dtypes.FLOAT
                shown = scalar.constant(0.0, kind)
            bias = scalar.select(test, shown, scalar.constant(float(low.payload), shown.dtype))
        return Scores(found_scale, causal, bias)


def _is_low(x: Scalar) -> bool:
    return x.op == "constant" and isinstance(x.payload, float) and x.payload <= _HIDES


def _parts(x: Scalar) -> set[Scalar]:
    found, stack = set[Scalar](), [x]
    while stack:
        part = stack.pop()
        if part not in found:
            found.add(part)
            stack.extend(part.arguments)
    return found


def _scale_of(x: Scalar, score: Scalar, kinds: tuple[DType, ...]) -> float | None:
    """What `score` is multiplied with in `x`, if with numbers alone."""
    x = uncast(x, kinds)
    if x is score:
        return 1.0
    if x.op in ("mul", "div"):
        left, right = (uncast(a, kinds) for a in x.arguments)
        if x.op == "mul" and left.op == "constant":
            left, right = right, left
        inner = _scale_of(left, score, kinds) if right.op == "constant" else None
        if inner is not None and float(right.payload) != 0:
            factor = float(right.payload)
            return inner * factor if x.op == "mul" else inner / factor
    return None


def _causal(test: Scalar, group: Attention) -> str:
    """Which of `CAUSAL` a comparison is; "" if none."""
    if test.op not in ("le", "lt", "ge", "gt"):
        return ""
    left, right = map(whole_number, test.arguments)
    if left is None or right is None or group.row == 0:
        return ""
    low, high = (left, right) if test.op in ("le", "lt") else (right, left)
    # low <= high: the key, less the row, is at most `reach`.
    behind = high - low
    reach = behind + group.key - group.row
    if test.op in ("lt", "gt"):
        reach = reach - 1
    if reach == 0:
        return "first"
    rows, keys = extent_of(group.row), extent_of(group.key)
    return "last" if reach == keys - rows else ""


class Heads:
    """The operands of an attention, if their indices allow.

    Attributes:
        refusal: Why they do not; "" if they do.
        operands: Queries, keys, values and result, then what is added.
        numbers: See `ATTENTION`.

    Args:
        group: The attention.
        factors: Loads of queries, keys and values.
        bias: The load of what is added; None for nothing.
        strides: Of all buffers.
    """

    def __init__(
        self,
        group: Attention,
        factors: tuple[Scalar, Scalar, Scalar],
        bias: Scalar | None,
        strides: Strides,
    ) -> None:
        self.operands: tuple[Operand, ...] = ()
        self.numbers: tuple[Dim, ...] = ()
        self.refusal = self._read(group, [*factors, *([] if bias is None else [bias])], strides)

    def _read(self, group: Attention, loads: list[Scalar], strides: Strides) -> str:
        spaces = (group.batch, (group.row,), (group.key,), (group.column,), group.depth)
        axes = Axes(spaces, loads, [(group.root.buffer, group.at)])
        axes.split()
        axes.merge(strides)
        batch, *others = axes.spaces
        if any(len(space) > 1 for space in others):
            return "its queries, keys or columns are several axes"
        row, key, column, depth = (space[0] if space else 0 for space in others)
        places = [(x.buffer, x.at) for x in axes.bodies]
        query, keys, values, *added = places
        # What is added comes last, so that a call without it has the same order.
        ordered = [query, keys, values, (group.root.buffer, axes.stores[0][1]), *added]
        offsets = [offset_of(strides[buffer], at) for buffer, at in ordered]
        of: dict[Dim, list[Dim]] = {0: [0] * len(offsets)}
        for variable in (*batch, row, key, column, depth):
            steps = [step_along(offset, variable) for offset in offsets]
            if any(step is None for step in steps):
                return "an index is not linear"
            of[variable] = [step for step in steps if step is not None]
        if column == 0 or depth == 0 or of[depth][:2] != [1, 1] or of[column][2:4] != [1, 1]:
            return "the elements of a head do not lie side by side"
        found = _as_heads(batch, of)
        if isinstance(found, str):
            return found
        outer, head, count, key_count, key_head = found
        numbers: list[Dim] = [
            length_of(outer), count, key_count, *map(length_of, (row, key, depth, column)),
        ]  # fmt: skip
        for operand, (heads, line) in enumerate(((head, row), (key_head, key), (key_head, key))):
            numbers += [of[outer][operand], of[heads][operand], of[line][operand]]
        numbers += [of[outer][3], of[head][3], of[row][3]]
        numbers += [of[v][4] if added else 0 for v in (outer, head, row, key)]
        self.numbers = tuple(numbers)
        self.operands = tuple(
            Operand(buffer, origin_of(offset))
            for (buffer, _), offset in zip(ordered, offsets, strict=True)
        )
        return ""


def _as_heads(batch: list[Dim], of: dict[Dim, list[Dim]]) -> tuple[Dim, Dim, Dim, Dim, Dim] | str:
    """Which axes are the batch and the heads, how many heads there are of queries and of keys.

    The last axis is the one along which heads of keys lie: heads of queries that share one are an
    axis of their own, that keys do not change along.
    """
    shared = [v for v in batch if of[v][1] == 0 and of[v][2] == 0]
    plain = [v for v in batch if v not in shared]
    if len(shared) > 1 or len(plain) > 2:
        return "it goes over more axes than batch and heads"
    if not shared:
        *outer, head = [0, *plain] if len(plain) < 2 else plain
        return outer[0] if outer else 0, head, length_of(head), length_of(head), head
    (group,) = shared
    count = length_of(group)
    own = [k for k in range(len(of[group])) if k not in (1, 2)]
    for heads in reversed(plain):
        if all(of[heads][k] == of[group][k] * count for k in own):
            outer_axis = next((v for v in plain if v is not heads), 0)
            many = length_of(heads)
            return outer_axis, group, many * count, many, heads
    if len(plain) > 1:
        return "heads that share keys do not lie side by side"
    return plain[0] if plain else 0, group, count, 1, 0


def common_refusal(group: Attention) -> str:
    """Why no library may compute an attention, whatever its indices; "" if one may."""
    kind = group.query.dtype
    if kind not in _HALVES or {group.keys.dtype, group.values.dtype} != {kind}:
        return f"attention of {kind}"
    if group.root.buffer.dtype is not kind or group.epilogue not in (
        group.result, scalar.cast(group.result, kind),
    ):  # fmt: skip
        return "its result is changed before it is written"
    if _symbols(extent_of(group.key)) - _symbols(extent_of(group.row)):
        # A graph with a call of a library has the sizes in it.
        return "keys may get more from run to run"
    return ""


def _symbols(dim: Dim) -> set[Atom]:
    return {atom for atom in sizes.atoms_of(dim) if atom.kind != "index"}


def axes_of_bias(group: Attention, bias: Scalar) -> tuple[Dim, ...]:
    """The variables of an attention that what is added depends on, the key last."""
    used = index_atoms(bias)
    order = (*group.batch, group.row, group.key)
    return tuple(v for v in order if v != 0 and sizes.as_atom(v) in used)
