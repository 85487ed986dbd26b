"""Windows that slide over the space of an image: sizes, padding, and where a tap reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from sardonyx.base import integer, sizes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.tensor import scalar
from sardonyx.tensor.assumptions import assume_at_most
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Shape, Tensor

#: Of what windows and steps count: positions in the image are computed with 64 bits.
_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True)
class Window:
    """A window over spatial axes; each field has one item per axis.

    Attributes:
        inputs: Sizes of the image.
        kernel: Taps of the window.
        strides: Steps between neighbouring windows.
        dilations: Steps between neighbouring taps.
        before: Padding in front.
        after: Padding behind.
        outputs: Number of windows.
    """

    inputs: Shape
    kernel: Shape
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: Shape
    after: Shape
    outputs: Shape

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.inputs)

    @property
    def reachable(self) -> Shape:
        """Taps up to the last that lies in the image for some window: a window may be larger."""
        return tuple(self._met(axis)[1] for axis in range(self.rank))

    def _met(self, axis: int) -> tuple[int, Dim]:
        """The first tap that lies in the image for some window, and the one behind the last."""
        taps, size, before = self.kernel[axis], self.inputs[axis], self.before[axis]
        count, apart = self.outputs[axis], self.dilations[axis]
        if not (isinstance(taps, int) and isinstance(size, int) and isinstance(before, int)):
            return 0, taps
        behind = min(taps, max(1, (size - 1 + before) // apart + 1))
        if not isinstance(count, int):
            return 0, behind
        missing = before - (count - 1) * self.strides[axis]  # to where the last window begins
        # No window begins behind the image's first element: libraries know padding alone.
        return min(behind - 1, max(0, -(-missing // apart)), max(0, before // apart)), behind

    def cropped(self) -> tuple[Window, tuple[int, ...]]:
        """The window without taps at its ends that are in the padding in all places.

        Three taps that are 12 apart meet an image of 10 elements with the middle one alone.

        Returns:
            It, and how many taps are left out in front, for each axis.
        """
        met = [self._met(axis) for axis in range(self.rank)]
        firsts = tuple(first for first, _ in met)
        kernel = tuple(behind - first for first, behind in met)
        if kernel == self.kernel:
            return self, firsts
        lost = zip(self.kernel, met, self.dilations, strict=True)
        before = (b - f * d for b, f, d in zip(self.before, firsts, self.dilations, strict=True))
        after = (
            a - (taps - behind) * d
            for a, (taps, (_, behind), d) in zip(self.after, lost, strict=True)
        )
        cut = dataclasses.replace(self, kernel=kernel, before=tuple(before), after=tuple(after))
        return cut, firsts

    def alone(self, axis: int) -> Window:
        """The window along one axis."""
        fields = (getattr(self, f.name) for f in dataclasses.fields(self))
        return Window(*((field[axis],) for field in fields))

    def positions(self, at: Sequence[Dim], taps: Sequence[Dim]) -> tuple[Dim, ...]:
        """Where the tap `taps` of the window `at` reads; outside of the image in the padding."""
        return tuple(
            sizes.total((o * s, k * d, -b))
            for o, s, k, d, b in zip(
                at, self.strides, taps, self.dilations, self.before, strict=True
            )
        )

    def inside(self, positions: Sequence[Dim]) -> Scalar | None:
        """Whether positions lie in the image; None where all windows do entirely."""
        condition: Scalar | None = None
        for axis, position in enumerate(positions):
            for test in self._tests(axis, position):
                condition = test if condition is None else condition & test
        return condition

    def _tests(self, axis: int, position: Dim) -> list[Scalar]:
        tests = []
        if not integer.is_nonnegative(-self.before[axis]):
            tests.append(scalar.size(position) >= 0)
        if not self._ends_inside(axis):
            end = scalar.size(self.inputs[axis])
            tests.append(scalar.size(position) < end)
        return tests

    def _ends_inside(self, axis: int) -> bool:
        """Whether the last tap of the last window is provably not behind the image."""
        last = (self.outputs[axis] - 1) * self.strides[axis] - self.before[axis]
        last = last + (self.kernel[axis] - 1) * self.dilations[axis]
        if integer.is_nonnegative(self.inputs[axis] - 1 - last):
            return True
        # Outputs are floor(...) + 1 of what fits, so only padding lets a window hang over.
        fitting = _count(
            self.inputs[axis], self.extent(axis), self.strides[axis], self.before[axis], 0
        )
        return integer.is_nonnegative(fitting - self.outputs[axis])

    def hangs_over(self, axis: int, padded: bool) -> bool:
        """Whether a window may reach outside of the image, or of the padded image."""
        if not padded:
            in_front = integer.is_nonnegative(-self.before[axis])
            return not (in_front and self._ends_inside(axis))
        space = self.inputs[axis] + self.before[axis] + self.after[axis]
        fitting = _count(space, self.extent(axis), self.strides[axis], 0, 0)
        return not integer.is_nonnegative(fitting - self.outputs[axis])

    def extent(self, axis: int) -> Dim:
        """From the first to the last tap, both included."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def load(
        self, x: Tensor, outer: Sequence[Dim], positions: Sequence[Dim], other: float
    ) -> Scalar:
        """The element at `outer` and `positions`, or `other` in the padding."""
        value = scalar.load(x, (*outer, *positions))
        condition = self.inside(positions)
        return value if condition is None else scalar.select(condition, value, other)


def _count(length: Dim, extent: Dim, stride: int, before: Dim, after: Dim) -> Dim:
    return integer.floordiv(sizes.total((length, before, after, -extent)), stride) + 1


def _rounded_up(length: Dim, extent: Dim, stride: int, before: Dim, after: Dim) -> Dim:
    """The number of windows where one that hangs over the end counts, if it begins before it."""
    count = integer.ceildiv(sizes.total((length, before, after, -extent)), stride) + 1
    return integer.minimum(count, integer.ceildiv(length + before, stride))


def check_counts(where: str, **counts: Sequence[Dim]) -> None:
    """Refuse taps and steps that are not positive, or beyond all images.

    Raises:
        InvalidGraph: One is.
    """
    for name, given in counts.items():
        if any(isinstance(n, int) and not 0 < n < _LIMIT for n in given):
            what, wanted = f"Its {name} must be positive", f"numbers from 1 to {_LIMIT - 1}"
            raise InvalidGraph(message(where, what, expected=wanted, got=str(list(given))))


class WindowAttributes(NamedTuple):
    """Attributes of operators that move a window over images, as the specification has them."""

    kernel_shape: Sequence[int] | None = None
    strides: Sequence[int] | None = None
    pads: Sequence[int] | None = None
    dilations: Sequence[int] | None = None
    auto_pad: str = "NOTSET"
    ceil_mode: int = 0


def make_window(
    where: str,
    inputs: Shape,
    kernel: Shape,
    given: WindowAttributes,
) -> Window:
    """The window that the attributes of a convolution or pooling operator describe.

    Raises:
        InvalidGraph: They do not fit the space, or no window fits the image.
    """
    rank = len(inputs)
    auto_pad = given.auto_pad
    steps = tuple(given.strides or (1,) * rank)
    apart = tuple(given.dilations or (1,) * rank)
    edges = tuple(given.pads or (0,) * (2 * rank))
    expected = {"kernel_shape": len(kernel), "strides": len(steps), "dilations": len(apart)}
    for name, items in expected.items():
        if items != rank:
            raise InvalidGraph(
                message(where, f"Its {name} do not fit", expected=f"{rank} items", got=str(items))
            )
    if len(edges) != 2 * rank:
        raise InvalidGraph(
            message(where, "Its pads do not fit", expected=f"{2 * rank} items", got=str(len(edges)))
        )
    check_counts(where, kernel_shape=kernel, strides=steps, dilations=apart)
    before: list[Dim] = []
    after: list[Dim] = []
    outputs: list[Dim] = []
    for axis, length in enumerate(inputs):
        stride = steps[axis]
        extent = (kernel[axis] - 1) * apart[axis] + 1
        low, high = _edges(where, auto_pad, length, extent, stride, edges[axis::rank])
        rounding = _rounded_up if given.ceil_mode else _count
        count: Dim
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            count = integer.ceildiv(length, stride)
        else:
            count = rounding(length, extent, stride, low, high)
        # No window at all is right only for an image without elements.
        what = f"A window of {extent} is larger than the padded size of {length}"
        assume_at_most(integer.minimum(length, 1), count, where, what)
        before.append(low)
        after.append(high)
        outputs.append(count)
    return Window(inputs, kernel, steps, apart, tuple(before), tuple(after), tuple(outputs))


def _edges(
    where: str, auto_pad: str, length: Dim, extent: Dim, stride: int, pads: Sequence[int]
) -> tuple[Dim, Dim]:
    """Padding in front and behind along one axis."""
    if auto_pad in ("NOTSET", ""):
        return pads[0], pads[1]
    if auto_pad == "VALID":
        return 0, 0
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise InvalidGraph(
            message(
                where,
                "There is no such auto_pad",
                expected="NOTSET, VALID, SAME_UPPER or SAME_LOWER",
                got=auto_pad,
            )
        )
    needed = sizes.total(((integer.ceildiv(length, stride) - 1) * stride, extent, -length))
    total = integer.maximum(needed, 0)
    half = total // 2
    return (half, total - half) if auto_pad == "SAME_UPPER" else (total - half, half)
