"""Buffers of keys and values of onnxruntime's decoders, with room for more than they hold."""

from __future__ import annotations

from sardonyx.base import integer
from sardonyx.base.dtypes import INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.ranges import row_in
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.tensor import scalar
from sardonyx.tensor.checked import checks_of, with_checks
from sardonyx.tensor.language import (
    Tensor,
    assume_at_most,
    assume_equal,
    assume_shape,
    compute,
    reshape,
    slice_axis,
)
from sardonyx.tensor.scalar import Scalar


def length_of_past(where_: str, past: Tensor | None, length: Tensor | None) -> Dim:
    """How many keys a buffer of keys, or of keys and values, holds."""
    if past is None or length is None:
        what = "With past_present_share_buffer it needs a past and past_sequence_length"
        raise InvalidGraph(message(where_, what))
    (before,) = contents(reshape(scalar_of(length, where_), (1,)), "The length of the past", 0)
    found: Dim = before
    return found


def in_buffer(where_: str, past: Tensor, new: Tensor, before: Dim) -> Tensor:
    """A buffer (batch, heads, capacity, size) with new keys or values after the first `before`."""
    batch, heads, capacity, size = past.shape
    length = new.shape[2]
    assume_shape(past.shape, (batch, new.shape[1], capacity, new.shape[3]), where_, "The past")
    assume_at_most(before + length, capacity, where_, "The past has no room")

    def body(b: Dim, head: Dim, place: Dim, d: Dim) -> Scalar:
        at = scalar.size(place - before)
        is_new = (at >= 0) & (at < scalar.size(length))
        added = scalar.load(new, (b, head, scalar.as_index(at, length), d))
        return scalar.select(is_new, added, scalar.load(past, (b, head, place, d)))

    return compute((batch, heads, capacity, size), body)


def used_cache(
    where_: str,
    cache: Tensor,
    before: Dim,
    new: Dim,
    indirection: Tensor | None,
    beam_width: Tensor | None = None,
) -> Tensor:
    """The part of a buffer that is filled, each place from the beam that it belongs to.

    Args:
        where_: The operator.
        cache: (batch * beams, heads, capacity, size).
        before: How many places were filled before; the new ones are the row's own.
        new: How many places are new. Where it is not one, the tokens are a prompt, whose beams
            have all places of their own.
        indirection: Which beam each place is from, (batch, beams, places).
        beam_width: How many beams there are; another number is a fault.
    """
    batch, heads, _, size = cache.shape
    total = before + new
    if indirection is None:
        return slice_axis(cache, 2, 0, total)
    if indirection.rank != 3:
        what = "cache_indirection must have three axes"
        raise InvalidGraph(message(where_, what, got=str(list(indirection.shape))))
    beams = indirection.shape[1]
    assume_equal(batch, indirection.shape[0] * beams, where_, "cache_indirection")
    assume_at_most(before, indirection.shape[2], where_, "cache_indirection has too few places")
    width = None if beam_width is None else scalar.load(scalar_of(beam_width, where_), ())
    is_step = scalar.compare("eq", scalar.size(new), 1)

    def body(row: Dim, head: Dim, place: Dim, d: Dim) -> Scalar:
        group, beam = integer.floordiv(row, beams), integer.modulo(row, beams)
        given = scalar.load(indirection, (group, beam, place))
        is_old = (scalar.size(place) < scalar.size(before)) & is_step
        source = scalar.select(is_old, scalar.cast(given, INT64), scalar.size(beam))
        if width is not None:
            source = with_checks(
                source, checks_of(scalar.check_range(width, "beam_width", beams, beams))
            )
        chosen = row_in(source, "cache_indirection", beams)
        origin = group * beams + chosen
        return scalar.load(cache, (origin, head, place, d))

    return compute((batch, heads, total, size), body)
