"""Attentions with a library in the place of their kernel, which stays for what it cannot do.

A mask that is not an array of numbers is made one, once for all attentions that have the same; the
kernel reads it, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sardonyx.base import dtypes, sizes
from sardonyx.plan.axes import extent_of
from sardonyx.plan.grouping import pointwise
from sardonyx.plan.groups import Attention
from sardonyx.plan.inline import Materialized
from sardonyx.plan.layout import row_major
from sardonyx.plan.plan import LibraryCall
from sardonyx.plan.vendor_attention import (
    Heads,
    Scores,
    axes_of_bias,
    common_refusal,
)
from sardonyx.plan.vendor_offers import Accelerator, Offer, Strides, is_constant
from sardonyx.tensor import scalar
from sardonyx.tensor.rewriting import rewrite
from sardonyx.tensor.scalar import Scalar, load
from sardonyx.tensor.tensor import buffer, indices, make_map

if TYPE_CHECKING:
    from sardonyx.selection.invocation import Invocation
    from sardonyx.selection.selector import KernelSelector


def accelerated_attention(
    selector: KernelSelector, group: Attention, strides: Strides, accelerator: Accelerator
) -> list[Invocation] | str:
    """The invocations of an attention that a library takes, or why none does."""
    refusal = common_refusal(group)
    if refusal:
        return refusal
    before = dict(selector.packed)
    found = _offered(selector, group, strides, accelerator)
    if isinstance(found, str):
        selector.packed.go_back(before)
    return found


def _offered(
    selector: KernelSelector, group: Attention, strides: Strides, accelerator: Accelerator
) -> list[Invocation] | str:
    scores = Scores.of(group)
    if isinstance(scores, str):
        return scores
    loads = (group.query, group.keys, group.values)
    if any(x.op != "load" for x in loads):
        return "a factor is computed where it is read"
    bias, steps = None, list["Invocation"]()
    made: Strides = {}
    if scores.bias is not None:
        found = _bias(selector, group, scores.bias, strides, made)
        if found is None:
            return "what is added to its scores is the same for all keys"
        bias, steps = found
        group = replace(group, scores=_with_bias(group, scores, bias))
    own = {**strides, **made}
    form = Heads(group, loads, bias, own)
    if form.refusal:
        return form.refusal
    kind = group.query.dtype.name
    facts = (
        ("dtype", kind), ("result", kind), ("bias", bias is not None), ("residual", False),
        ("activation", ""), ("bias_type", bias.dtype.name if bias is not None else ""),
        ("scale", scores.scale), ("causal", scores.causal),
    )  # fmt: skip
    offer = Offer("attention", facts, form.operands, form.numbers)
    refusal = accelerator.refusal(offer)
    if refusal:
        return refusal
    strides.update(made)
    (invocation,) = selector.attention_kernel(group, strides)
    arguments = [x for o in offer.operands for x in (o.buffer, o.offset)]
    invocation.call_arguments = (*arguments, *offer.numbers)
    invocation.call = LibraryCall(offer.function, offer.facts, len(invocation.call_arguments))
    buffers = [o.buffer for o in offer.operands if o.buffer is not group.root.buffer]
    invocation.reads = tuple(dict.fromkeys((*invocation.reads, *buffers)))
    return [*steps, invocation]


def _bias(
    selector: KernelSelector, group: Attention, bias: Scalar, strides: Strides, made: Strides
) -> tuple[Scalar, list[Invocation]] | None:
    """What is added to scores as a load, and what writes the array; None if no key matters.

    Args:
        selector: Forms the kernel that writes it.
        group: The attention.
        bias: What is added.
        strides: Of all buffers.
        made: Gets those of a new one.
    """
    axes = axes_of_bias(group, bias)
    if group.key not in axes:
        return None
    narrow = bias.arguments[0] if bias.op == "cast" else bias
    if narrow.dtype is group.query.dtype:
        bias = narrow
    if bias.op == "load":
        return bias, []
    shape = tuple(map(extent_of, axes))
    atoms = dict(zip(map(sizes.variable, axes), indices(shape), strict=True))
    contents = make_map(shape, rewrite(bias, atoms=atoms))
    if is_constant(bias) and all(isinstance(d, int) for d in shape):
        packed, steps = selector.packed_buffer(contents, strides)
        made[packed] = row_major(shape)
        return load(packed, axes), steps
    held = selector.masks.get(contents)
    if held is not None and held in strides:
        return load(held, axes), []
    held = selector.masks[contents] = buffer(("added to scores", contents), shape, bias.dtype)
    made[held] = row_major(shape)
    root = Materialized(contents, held, (contents.body,))
    return load(held, axes), [selector.rows(pointwise(root), {**strides, **made})]


def _with_bias(group: Attention, scores: Scores, bias: Scalar) -> Scalar:
    """The scores with what is added to them in one array."""
    kind = group.scores.dtype
    total = scalar.cast(group.score, dtypes.FLOAT) * scalar.constant(scores.scale, dtypes.FLOAT)
    total = total + scalar.cast(bias, dtypes.FLOAT)
    if scores.causal:
        rows, keys = extent_of(group.row), extent_of(group.key)
        reach = group.row
        if scores.causal == "last":
            reach = reach + keys - rows
        seen = scalar.size(group.key) <= scalar.size(reach)
        total = scalar.select(seen, total, float("-inf"))
    return scalar.cast(total, kind)
