"""Where a resized axis reads its source: exact index maps where there are any, else floats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from sardonyx.base import dtypes, integer, quotients
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar

MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)


def scaled_length(length: Dim, scale: float) -> Dim:
    """floor(length * scale), rounding as float32 does where the length is known."""
    if isinstance(length, int):
        return int(np.floor(np.float32(length) * np.float32(scale)))
    fraction = as_fraction(scale)
    return integer.floordiv(length * fraction.numerator, fraction.denominator)


def as_fraction(scale: float) -> Fraction:
    """The simplest fraction that is the same float32, or the float itself."""
    simple = Fraction(scale).limit_denominator(4096)
    return simple if np.float32(float(simple)) == np.float32(scale) else Fraction(scale)


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """One axis of a resize.

    Attributes:
        length: Size of the source.
        output: Size of the result.
        scale: Scale that was given, or that sizes agreed on; None where sizes alone were given.
        mode: One of `MODES`.
        dtype: Float type of coordinates.
        begin: Begin of the cropped region, 0 to 1, for `tf_crop_and_resize`.
        end: Its end.
    """

    length: Dim
    output: Dim
    scale: float | Scalar | None
    mode: str
    dtype: DType
    begin: Scalar | None = None
    end: Scalar | None = None

    @property
    def is_identity(self) -> bool:
        """Whether every output element is the input element of the same index."""
        same = integer.known_equal(self.length, self.output)
        if not same or self.mode == "tf_crop_and_resize":
            return False
        return self.scale is None or (isinstance(self.scale, float) and self.scale == 1.0)

    def _whole_factor(self) -> tuple[int, int] | None:
        """(k, 1) or (1, k) where the result is exactly k times longer or shorter."""
        if isinstance(self.scale, Scalar):
            return None
        if self.scale is not None:
            fraction = as_fraction(self.scale)
            if 1 in (fraction.numerator, fraction.denominator):
                return fraction.numerator, fraction.denominator
            return None
        for a, b, flip in ((self.output, self.length, False), (self.length, self.output, True)):
            factor = quotients.exact_quotient(a, b)
            if isinstance(factor, int) and factor > 0:
                return (1, factor) if flip else (factor, 1)
        return None

    def nearest_index(self, o: Dim, rounding: str) -> Dim | None:
        """The source of output `o` as an index map, where scale and modes allow one."""
        factor = self._whole_factor()
        if factor is None or self.mode not in ("asymmetric", "half_pixel", "pytorch_half_pixel"):
            return None
        longer, shorter = factor
        centred = self.mode != "asymmetric"
        prefers = rounding in ("round_prefer_floor", "round_prefer_ceil")
        if longer > 1:
            exact = prefers if centred else rounding == "floor"
            return integer.floordiv(o, longer) if exact else None
        if not centred:
            return o * shorter
        if self.mode == "pytorch_half_pixel" and not (
            isinstance(self.output, int) and self.output > 1
        ):
            return None
        # The middle of k elements; between two of them for an even k.
        up = shorter % 2 == 1 or rounding in ("ceil", "round_prefer_ceil")
        return o * shorter + (shorter // 2 if up else shorter // 2 - 1)

    def between(self, o: Dim) -> tuple[Dim, Dim, int] | None:
        """(i, m, d): output `o` lies m / d behind element i, perhaps that before the first.

        None unless the result is a whole number of times longer.
        """
        factor = self._whole_factor()
        if factor is None or factor[0] < 2:
            return None
        longer = factor[0]
        if self.mode == "asymmetric":
            below = integer.floordiv(o, longer)
            return below, o - below * longer, longer
        several = isinstance(self.output, int) and self.output > 1
        if self.mode == "half_pixel" or (self.mode == "pytorch_half_pixel" and several):
            place = o * 2 + (1 - longer)
            below = integer.floordiv(place, 2 * longer)
            return below, place - below * (2 * longer), 2 * longer
        return None

    def coordinate(self, o: Dim) -> Scalar:
        """The position in the source of output `o`, before rounding and clamping."""
        dtype = self.dtype
        at = scalar.cast(scalar.size(o), dtype)
        length = scalar.cast(scalar.size(self.length), dtype)
        output = scalar.cast(scalar.size(self.output), dtype)
        scale, fractional = output / length, output
        if self.scale is not None:
            # The target length is what the scale asks for, which need not be whole.
            scale = scalar.cast(scalar.lift(self.scale, dtype), dtype)
            fractional = length * scale
        if self.mode == "asymmetric":
            return at / scale
        if self.mode == "half_pixel":
            return (at + 0.5) / scale - 0.5
        several = scalar.size(self.output) > 1
        if self.mode == "pytorch_half_pixel":
            return scalar.select(several, (at + 0.5) / scale - 0.5, 0.0)
        if self.mode == "align_corners":
            return scalar.select(several, at * (length - 1.0) / (fractional - 1.0), 0.0)
        if self.mode == "half_pixel_symmetric":
            # The output may be shorter than scale * length: its middle stays in the middle.
            shift = length * 0.5 * (1.0 - output / fractional)
            return shift + (at + 0.5) / scale - 0.5
        if self.mode == "tf_crop_and_resize" and self.begin is not None and self.end is not None:
            last = length - 1.0
            step = (self.end - self.begin) * last / (fractional - 1.0)
            middle = (self.begin + self.end) * last * 0.5
            return scalar.select(several, self.begin * last + at * step, middle)
        raise InvalidGraph(
            message(
                "Resize",
                "There is no such coordinate_transformation_mode",
                expected=", ".join(MODES),
                got=self.mode,
            )
        )


def round_coordinate(coordinate: Scalar, rounding: str) -> Scalar:
    """A coordinate as the float of a whole index, by one of ONNX's nearest modes."""
    if rounding == "floor":
        return scalar.unary("floor", coordinate)
    if rounding == "ceil":
        return scalar.unary("ceil", coordinate)
    if rounding == "round_prefer_floor":
        return scalar.unary("ceil", coordinate - 0.5)
    if rounding == "round_prefer_ceil":
        return scalar.unary("floor", coordinate + 0.5)
    raise InvalidGraph(message("Resize", f"There is no nearest_mode {rounding!r}"))


def clamped(position: Scalar, length: Dim) -> Dim:
    """A float position as an index into an axis, at its ends where it lies outside."""
    whole = scalar.cast(position, dtypes.INT64)
    last = scalar.size(length - 1)
    bounded = scalar.binary("max", scalar.binary("min", whole, last), 0)
    return scalar.as_index(bounded, length)


def within(position: Scalar, length: Dim) -> Scalar:
    """Whether a float position lies on an axis."""
    last = scalar.cast(scalar.size(length - 1), position.dtype)
    return (position >= 0.0) & (position <= last)


def cubic_weight(distance: Scalar, a: float) -> Scalar:
    """Keys' cubic kernel with the free coefficient `a`, 0 beyond a distance of 2."""
    d = scalar.unary("abs", distance)
    near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    far = (((d - 5.0) * d + 8.0) * d - 4.0) * a
    beyond = scalar.select(d < 2.0, far, 0.0)
    return scalar.select(d <= 1.0, near, beyond)


# -- keep_aspect_ratio_policy -----------------------------------------------------------------


def proportional_lengths(lengths: Sequence[Dim], given: Sequence[Dim], policy: str) -> list[Dim]:
    """Output lengths in the proportions of `lengths`, none or all at least as large as `given`.

    Raises:
        InvalidGraph: There is no such policy.
    """
    if policy not in ("not_larger", "not_smaller"):
        raise InvalidGraph(message("Resize", f"There is no keep_aspect_ratio_policy {policy!r}"))
    choose: Callable[[Dim, Dim], Dim] = (
        integer.minimum if policy == "not_larger" else integer.maximum
    )
    found: list[Dim] = []
    for length in lengths:
        wanted: Dim | None = None
        for other, size in zip(lengths, given, strict=True):
            # round(length * size / other), halves up
            candidate = integer.floordiv(length * size * 2 + other, other * 2)
            wanted = candidate if wanted is None else choose(wanted, candidate)
        found.append(0 if wanted is None else wanted)
    return found


def common_scale(lengths: Sequence[Dim], given: Sequence[Dim], policy: str) -> float | Scalar:
    """The one scale that all axes get: the smallest, or the largest, that the sizes ask for."""
    if all(isinstance(d, int) for d in (*lengths, *given)):
        ratios = [float(np.float32(g) / np.float32(d)) for g, d in zip(given, lengths, strict=True)]  # type: ignore[arg-type]  # the caller saw that they are numbers
        return min(ratios) if policy == "not_larger" else max(ratios)
    choice = "min" if policy == "not_larger" else "max"
    common: Scalar | None = None
    for length, size in zip(lengths, given, strict=True):
        wanted = scalar.cast(scalar.size(size), dtypes.FLOAT)
        ratio = wanted / scalar.cast(scalar.size(length), dtypes.FLOAT)
        common = ratio if common is None else scalar.binary(choice, common, ratio)
    return 1.0 if common is None else common
