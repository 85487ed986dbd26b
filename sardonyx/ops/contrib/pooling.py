"""MaxpoolWithMask, of which onnxruntime's schema says that it is for internal use.

What it computes is what onnxruntime's kernel for the CPU was seen to give.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import integer, sizes
from sardonyx.base.dtypes import FLOAT, INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.pooling import window_of
from sardonyx.ops.onnx.reduction import cum_sum
from sardonyx.ops.onnx.windows import WindowAttributes
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_shape,
    compute,
    concat,
    constant,
    known_tensor,
    reshape,
)
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import indices, make_reduce, reduced_indices

DOMAIN = "com.microsoft"
_NAME = "MaxpoolWithMask"
_LEAST = -3.4028234663852886e38  # float32's lowest, which stands where nothing is seen


@op(_NAME, 1, domain=DOMAIN)
def maxpool_with_mask(
    x: Tensor,
    mask: Tensor,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    pads: Sequence[int] | None = None,
    storage_order: int = 0,
    strides: Sequence[int] | None = None,
) -> Tensor:
    """The largest of every window of (batch, channels, *space), as far as a mask lets it see.

    Along the last axis a window sees up to its first element whose mask is 0; the first element
    of an image of two axes or more is never hidden. NaN and -infinity are never seen.

    A mask of P = (its batch) * (its channels) planes is not read by planes: the elements of
    image p are compared to those of the flat mask from (p * elements of an image) mod P on. So
    all images see one plane if there is no other.
    """
    given = WindowAttributes(kernel_shape, strides, pads, None, auto_pad)
    window = window_of(_NAME, x, given)
    if mask.rank != x.rank:
        what, got = "The mask needs as many axes as the images", str(list(mask.shape))
        raise InvalidGraph(message(_NAME, what, expected=str(x.rank), got=got))
    assume_shape(mask.shape[2:], window.inputs, _NAME, "The space of the mask")
    before = _hidden_before(x, mask)
    shape = (*x.shape[:2], *window.outputs)
    at, taps = indices(shape), reduced_indices(window.reachable)
    positions = window.positions(at[2:], taps)
    first = window.positions(at[2:], (*taps[:-1], 0))[-1]
    image = (0, 0) if before.shape[:2] == (1, 1) else at[:2]

    def count(end: Dim) -> Scalar:
        return scalar.load(before, (*image, *positions[:-1], end))

    shown = scalar.compare("eq", count(positions[-1] + 1), count(integer.maximum(first, 0)))
    value = scalar.load(x, (*at[:2], *positions))
    value = scalar.select(shown & (value > _LEAST), value, _LEAST)
    inside = window.inside(positions)
    if inside is not None:
        value = scalar.select(inside, value, _LEAST)
    found = make_reduce(shape, window.reachable, "max", value, FLOAT)
    return compute(shape, lambda *o: scalar.binary("max", scalar.load(found, o), _LEAST))


def _hidden_before(x: Tensor, mask: Tensor) -> Tensor:
    """How many elements of a row are hidden before each place, and before its end.

    Of all images, or of one that stands for all.
    """
    space = x.shape[2:]
    planes = mask.shape[0] * mask.shape[1]
    images = (1, 1) if integer.known_equal(planes, 1) else x.shape[:2]
    size, flat = sizes.product(space), reshape(mask, (sizes.product(mask.shape),))

    def hidden(*at: Dim) -> Scalar:
        place: Dim = 0
        for extent, i in zip(space, at[2:], strict=True):
            place = place * extent + i
        image = at[0] * images[1] + at[1]
        start = integer.modulo(image * size, planes)
        is_zero = scalar.compare("eq", scalar.load(flat, (start + place,)), 0)
        if len(space) > 1:
            is_zero = is_zero & (scalar.size(place) > 0)
        return scalar.cast(is_zero, INT64)

    shape = (*images, *space)
    axis = known_tensor((len(shape) - 1,), (), INT64)
    return concat([constant(0, INT64, (*shape[:-1], 1)), cum_sum(compute(shape, hidden), axis)],
                  len(shape) - 1)  # fmt: skip
