"""Caches of keys and values whose elements are whole numbers of 8 bits with a scale.

code = clamp(round(x / scale), -128, 127), and x = code * scale; see onnxruntime's
docs/contrib_ops/cuda/paged_attention.md.
"""

from __future__ import annotations

from sardonyx.base import errors, sizes
from sardonyx.base.dtypes import FLOAT, INT8, DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.tensor import scalar
from sardonyx.tensor.language import Tensor, assume_equal, cast, clip, compute, round_even
from sardonyx.tensor.scalar import Scalar

_LOWEST, _HIGHEST = -128.0, 127.0
_KINDS = ("NONE", "PER_TENSOR", "PER_CHANNEL")


@dataclass(frozen=True, slots=True)
class CacheCodes:
    """How a cache (blocks, block, heads, size) holds its elements.

    Attributes:
        scale: One number, or one for each head and place in it; None: elements are themselves.
        by_channel: Whether there is one for each.
        size: Of heads.
    """

    scale: Tensor | None
    by_channel: bool
    size: Dim

    def stored(self, x: Tensor) -> Tensor:
        """What a cache holds of (tokens, heads, size)."""
        if self.scale is None:
            return x
        wide = cast(x, FLOAT)
        scaled = compute(
            x.shape,
            lambda t, head, d: scalar.load(wide, (t, head, d)) / self._scale_at(head, d),
        )
        return cast(clip(round_even(scaled), _LOWEST, _HIGHEST), INT8)

    def read(self, x: Tensor, dtype: DType) -> Tensor:
        """What (tokens, heads, places, size) of a cache means, in a type."""
        if self.scale is None:
            return cast(x, dtype)

        def body(t: Dim, head: Dim, place: Dim, d: Dim) -> Scalar:
            code = scalar.cast(scalar.load(x, (t, head, place, d)), FLOAT)
            return code * self._scale_at(head, d)

        return cast(compute(x.shape, body), dtype)

    def _scale_at(self, head: Dim, d: Dim) -> Scalar:
        assert self.scale is not None  # noqa: S101 - narrows the type for the checker
        at = head * self.size + d if self.by_channel else 0
        return scalar.load(self.scale, (at,))


def codes_of(
    where: str, cache: Tensor, tokens: Tensor, kind: str, scale: Tensor | None
) -> CacheCodes:
    """How a cache holds its elements, by its attribute and its scale.

    Raises:
        InvalidGraph: Attribute, scale and types do not fit each other.
        NotImplemented: The cache has codes of another type.
    """
    if kind not in _KINDS:
        expected = " or ".join(_KINDS)
        raise InvalidGraph(message(where, "Bad kind of codes", expected=expected, got=kind))
    if (kind == _KINDS[0]) != (scale is None):
        what = "A cache has a scale if it is quantised, and only then"
        raise InvalidGraph(message(where, what, got=kind))
    heads, size = cache.shape[2:]
    if scale is None:
        if cache.dtype is not tokens.dtype:
            what, got = "The caches have another type than the tokens", cache.dtype.name
            raise InvalidGraph(message(where, what, expected=tokens.dtype.name, got=got))
        return CacheCodes(None, False, size)
    if cache.dtype is not INT8:
        what = "Quantised caches of this type are not supported"
        raise errors.NotImplemented(message(where, what, expected="int8", got=cache.dtype.name))
    by_channel = kind == _KINDS[2]
    count = heads * size if by_channel else 1
    assume_equal(sizes.product(scale.shape), count, where, "The scale of a cache has another size")
    return CacheCodes(scale.reshape(count), by_channel, size)
