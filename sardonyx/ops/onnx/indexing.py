"""What both indexers of sparse attention do: norms, rotations, pooled keys, scores, best ones.

Tensors here are in float32, whatever is given and stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.base import integer, quotients
from sardonyx.base.dtypes import FLOAT, INT32
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ops.contrib.varlen import row_of
from sardonyx.ops.core.ranges import row_in
from sardonyx.ops.onnx.gather import top_k
from sardonyx.ops.onnx.normalisation import rms_norm
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_shape,
    cast,
    compute,
    concat,
    constant,
    maximum,
    reshape,
    slice_axis,
)
from sardonyx.tensor.scalar import Scalar

HIDDEN = float("-inf")


@dataclass(frozen=True, slots=True)
class IndexPolicy:
    """The attributes of an indexer.

    Attributes:
        where: The operator.
        is_tokens: Whether tokens are selected by blocks (qsa), or compressed entries (csa).
        ratio: How many tokens a block, or an entry, is made of.
        count: How many blocks, or entries, are selected at most.
        epsilon: Of the norms.
        scale: Of scores; 1 / sqrt(size) if None.
        head_scale: Of the heads' weights; 1 / sqrt(heads) if None.
    """

    where: str
    is_tokens: bool
    ratio: int
    count: int
    epsilon: float
    scale: float | None
    head_scale: float | None

    @property
    def capacity(self) -> int:
        """How many selected places there is room for."""
        return self.count * self.ratio + self.ratio - 1 if self.is_tokens else self.count


def policy_of(
    where: str,
    mode: str,
    ratio: int,
    budget: int | None,
    top: int | None,
    epsilon: float,
    scale: float | None,
    head_scale: float | None,
) -> IndexPolicy:
    """The policy of attributes that fit each other.

    Raises:
        InvalidGraph: They do not.
    """
    if mode not in ("qsa", "csa"):
        expected = "qsa or csa"
        raise InvalidGraph(message(where, "Bad policy_mode", expected=expected, got=mode))
    is_tokens = mode == "qsa"
    given, name = (budget, "token_budget") if is_tokens else (top, "index_topk")
    others = (top, head_scale) if is_tokens else (budget,)
    if any(x is not None for x in others):
        what = "index_topk and head_weight_scale go with csa alone, and token_budget with qsa"
        raise InvalidGraph(message(where, what, got=mode))
    if ratio < 1 or given is None or given < 1 or (is_tokens and given % ratio):
        what = f"It needs a compress_ratio, and {name}"
        expected = "at least one, and whole blocks of tokens"
        raise InvalidGraph(message(where, what, expected=expected, got=f"{ratio}, {given}"))
    count = given // ratio if is_tokens else given
    return IndexPolicy(where, is_tokens, ratio, count, epsilon, scale, head_scale)


def check_inputs(policy: IndexPolicy, wanted: Sequence[tuple[Tensor | None, bool, str]]) -> None:
    """Refuse inputs of the other policy, and that some are missing.

    Args:
        policy: The policy.
        wanted: Inputs, whether each belongs to qsa (else csa), and their names.
    """
    for x, is_tokens, name in wanted:
        if (x is None) == (is_tokens == policy.is_tokens):
            what = f"Its input {name} is missing" if x is None else f"It has the input {name}"
            raise InvalidGraph(message(policy.where, f"{what}, with another policy_mode"))


def split_key(
    policy: IndexPolicy, x: Tensor, key: Tensor | None, size: Dim
) -> tuple[Tensor, Tensor]:
    """Queries and keys; without keys they are the last `size` of what holds both."""
    if key is not None:
        return x, key
    if not policy.is_tokens:
        raise InvalidGraph(message(policy.where, "Its input key is missing"))
    width = x.shape[-1] - size
    axis = x.rank - 1
    return slice_axis(x, axis, 0, width), slice_axis(x, axis, width, x.shape[-1])


@dataclass(frozen=True, slots=True)
class RotaryTables:
    """Tables of cosines and sines by place: (places, width), or such for each request."""

    cosine: Tensor
    sine: Tensor
    policy: IndexPolicy

    def check(self, batch: Dim) -> None:
        """Refuse tables of other shapes."""
        where, shape = self.policy.where, self.cosine.shape
        if self.cosine.rank not in (2, 3):
            what = "cos_cache must have two axes, or three"
            raise InvalidGraph(message(where, what, got=str(list(shape))))
        assume_shape(self.sine.shape, shape, where, "sin_cache")
        if self.cosine.rank == 3:  # noqa: PLR2004 - a table for each request
            assume_shape(shape[:1], (batch,), where, "cos_cache")

    def rotate(
        self,
        x: Tensor,
        place: Callable[[tuple[Dim, ...]], tuple[Dim, Scalar]],
        name: str = "",
    ) -> Tensor:
        """Vectors along the last axis, rotated by the angles of their places.

        qsa rotates the first elements, half of the table's width apart; csa neighbours among the
        last ones, twice the table's width. A place outside of the table is a fault where places
        have a name; else they are those of vectors that may not be there, and taken as its ends.

        Args:
            x: The vectors.
            place: Of the indices before the last: the request and the place.
            name: What a place is called.
        """
        width, size = self.cosine.shape[-1], x.shape[-1]
        is_tokens = self.policy.is_tokens
        whole = width if is_tokens else width * 2
        first = 0 if is_tokens else size - whole
        half = width // 2

        def body(*at: Dim) -> Scalar:
            *row, d = at
            request, where = place(tuple(row))
            inner = d - first
            if is_tokens:
                apart, column = half, inner
                is_left = scalar.size(inner) < scalar.size(half)
            else:
                apart, column = 1, inner // 2
                is_left = scalar.compare("eq", scalar.size(inner % 2), 0)
            value = scalar.load(x, at)
            behind = scalar.load(x, (*row, d + apart))
            before = scalar.load(x, (*row, d - apart))
            other = scalar.select(is_left, -behind, before)
            c, s = (self._angle(t, request, where, column, name) for t in (self.cosine, self.sine))
            inside = (scalar.size(inner) >= 0) & (scalar.size(inner) < scalar.size(whole))
            return scalar.select(inside, value * c + other * s, value)

        return compute(x.shape, body)

    def _angle(self, table: Tensor, request: Dim, place: Scalar, column: Dim, name: str) -> Scalar:
        extent = table.shape[-2]
        row = row_in(place, name, extent) if name else row_of(place, extent)
        at = (row, column) if table.rank == 2 else (request, row, column)  # noqa: PLR2004 - shared
        return scalar.cast(scalar.load(table, at), FLOAT)


def with_one_more(x: Tensor, axis: int) -> Tensor:
    """With a row of zeros behind the others, so that an index has somewhere to be."""
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return concat([x, constant(0, x.dtype, shape)], axis)


def normal(policy: IndexPolicy, x: Tensor, weight: Tensor) -> Tensor:
    """Vectors of float32 divided by their root mean square, times a weight."""
    return rms_norm(x, cast(weight, FLOAT), -1, policy.epsilon, 1)[0]


def heads_of(policy: IndexPolicy, x: Tensor, weight: Tensor) -> Tensor:
    """Queries (..., heads * size) as normalised (..., heads, size) in float32."""
    size = weight.shape[0]
    heads = quotients.exact_quotient(x.shape[-1], size)
    if heads is None or not isinstance(heads, int):
        what = "The width of queries must be a known number of heads of query_norm_weight's size"
        raise InvalidGraph(message(policy.where, what, got=str(list(x.shape))))
    split = reshape(cast(x, FLOAT), (*x.shape[:-1], heads, size))
    return normal(policy, split, weight)


def total_scores(policy: IndexPolicy, each: Tensor, weights: Tensor | None) -> Tensor:
    """Scores (rows, entries) of products (rows, heads, entries) of queries and keys.

    Args:
        policy: The policy.
        each: Products of all heads' queries with the keys, times the scale.
        weights: Of heads, (rows, heads); None: each counts as one.
    """
    positive = maximum(each, 0.0)
    if weights is None:
        return positive.sum(1)
    heads = each.shape[1]
    if not isinstance(heads, int):
        raise InvalidGraph(message(policy.where, "The number of heads is not known"))
    factor = heads**-0.5 if policy.head_scale is None else policy.head_scale
    shared = reshape(cast(weights, FLOAT), (*weights.shape, 1))
    return (positive * shared).sum(1) * factor


def best(policy: IndexPolicy, scores: Tensor) -> Tensor:
    """The places of the largest scores (rows, entries), those in front first: int64[rows, count].

    Where there are fewer, places behind all entries follow.
    """
    more = constant(HIDDEN, FLOAT, (scores.shape[0], policy.count))
    return top_k(concat([scores, more], 1), policy.count, 1)[1]


def selected_tokens(
    policy: IndexPolicy,
    chosen: Tensor,
    seen: Callable[[Dim], Scalar],
    token: Callable[[Dim, Scalar], Scalar],
) -> tuple[Tensor, Tensor]:
    """(int32[rows, capacity], int32[rows]): tokens of the best blocks, then of one not complete.

    Args:
        policy: The policy.
        chosen: The best blocks, int64[rows, count].
        seen: How many tokens a row sees.
        token: The place of a token, by the row and its number among those that are seen.
    """
    rows, ratio = chosen.shape[0], policy.ratio

    def used(row: Dim) -> Scalar:
        """How many tokens complete blocks give."""
        blocks = scalar.binary("div", seen(row), ratio)
        return scalar.binary("min", blocks, policy.count) * ratio

    def tail(row: Dim) -> Scalar:
        return scalar.binary("rem", seen(row), ratio)

    def body(row: Dim, slot: Dim) -> Scalar:
        at, inside = scalar.size(slot), integer.modulo(slot, ratio)
        last = policy.count - 1
        rank = integer.minimum(integer.floordiv(slot, ratio), last)
        block = scalar.load(chosen, (row, rank)) * ratio + scalar.size(inside)
        behind = seen(row) - tail(row) + at - used(row)
        is_block = at < used(row)
        number = scalar.select(is_block, block, behind)
        there = at < used(row) + tail(row)
        found = scalar.select(there, token(row, number), -1)
        return scalar.cast(found, INT32)

    counts = compute((rows,), lambda row: scalar.cast(used(row) + tail(row), INT32))
    return compute((rows, policy.capacity), body), counts


def selected_entries(
    policy: IndexPolicy, chosen: Tensor, seen: Callable[[Dim], Scalar]
) -> tuple[Tensor, Tensor]:
    """(int32[rows, capacity], int32[rows]): the best entries, of those that a row sees."""

    def body(row: Dim, slot: Dim) -> Scalar:
        entry = scalar.load(chosen, (row, slot))
        there = scalar.size(slot) < seen(row)
        return scalar.cast(scalar.select(there, entry, -1), INT32)

    def count(row: Dim) -> Scalar:
        most = scalar.binary("max", seen(row), 0)
        return scalar.cast(scalar.binary("min", most, policy.count), INT32)

    rows = chosen.shape[0]
    return compute((rows, policy.capacity), body), compute((rows,), count)


def entries_seen(policy: IndexPolicy, position: Scalar, entries: Scalar) -> Scalar:
    """How many of the compressed entries a query at a position sees."""
    most = scalar.binary("div", scalar.binary("max", position, -1) + 1, policy.ratio)
    return scalar.binary("min", most, entries)


def pooled_windows(
    policy: IndexPolicy,
    shape: tuple[Dim, Dim, Dim],
    element: Callable[[bool, Dim, Dim, Dim, Dim], tuple[Scalar, Scalar]],
    bias: Tensor,
) -> Tensor:
    """(batch, windows, size): for each channel the mean of 2 * ratio values, weighed by gates.

    The first `ratio` are of the window before, with the first half of the channels, the others of
    the window itself, with the second half. Weights are softmax(gate + bias); where they have no
    finite positive sum, the mean is zero.

    Args:
        policy: The policy.
        shape: batch, windows and size.
        element: (whether it is the value, request, window, slot, channel) -> the element, and
            whether it is there at all; slots count from the window before.
        bias: Of gates, (ratio, 2 * size).
    """
    ratio, size = policy.ratio, shape[2]
    every = (*shape, 2 * ratio)

    def channel(slot: Dim, d: Dim) -> Dim:
        return d + integer.floordiv(slot, ratio) * size

    def logit(b: Dim, w: Dim, d: Dim, slot: Dim) -> Scalar:
        gate, there = element(False, b, w, slot, channel(slot, d))
        added = scalar.load(bias, (integer.modulo(slot, ratio), channel(slot, d)))
        return scalar.select(there, gate + scalar.cast(added, FLOAT), HIDDEN)

    def value(b: Dim, w: Dim, d: Dim, slot: Dim) -> Scalar:
        given, there = element(True, b, w, slot, channel(slot, d))
        return scalar.select(there, given, 0.0)

    logits = compute(every, logit)
    largest = logits.max(3, keepdims=True)

    def weight(b: Dim, w: Dim, d: Dim, slot: Dim) -> Scalar:
        top = scalar.load(largest, (b, w, d, 0))
        return scalar.unary("exp", scalar.load(logits, (b, w, d, slot)) - top)

    weights = compute(every, weight)
    total = weights.sum(3)
    whole = (weights * compute(every, value)).sum(3)

    def mean(*at: Dim) -> Scalar:
        sum_ = scalar.load(total, at)
        usable = (sum_ > 0.0) & (sum_ < float("inf"))
        return scalar.select(usable, scalar.load(whole, at) / sum_, 0.0)

    return compute(shape, mean)


def scale_of(policy: IndexPolicy, size: Dim) -> float:
    """What products of queries and keys of a size are multiplied by.

    Raises:
        InvalidGraph: The size is not known.
    """
    if policy.scale is not None:
        return policy.scale
    if not isinstance(size, int) or size < 1:
        raise InvalidGraph(message(policy.where, "The size of heads is not known", got=repr(size)))
    return float(size**-0.5)
