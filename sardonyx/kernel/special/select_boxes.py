"""Non-maximum suppression: boxes that do not overlap better ones too much (ONNX operator spec)."""

from __future__ import annotations

from sardonyx.base import sizes
from sardonyx.kernel.compiled import Kernel
from sardonyx.kernel.program import Operand
from sardonyx.kernel.special.frame import KernelFrame, volume
from sardonyx.kernel.special.task import SpecialTask, special
from sardonyx.kernel.types import F32, I64


@special("select_boxes")
def build_select_boxes(task: SpecialTask, symbol: str) -> Kernel:
    """boxes (B, N, 4), scores and order (B, C, N), limits -> selected (M, 3), count.

    `scores` falls along its last axis, and `order` says which box each belongs to. The limits are
    scalars: how many boxes of a class, the largest overlap, and the score to be exceeded if the
    attribute `scored` says that there is one. One block writes the classes one after the other.
    """
    return _SelectBoxes(task, symbol).build()


class _SelectBoxes:
    def __init__(self, task: SpecialTask, symbol: str) -> None:
        self.frame = KernelFrame(task, symbol)
        self.b = self.frame.builder
        self.boxes, self.scores, self.order, *limits = task.operands
        self.most, self.overlap, self.least = limits
        selected, count = task.outputs
        assert selected is not None and count is not None  # noqa: S101, PT018 - both are read
        self.selected, self.count = selected, count
        self.scored = bool(task.attribute("scored"))
        self.centred = bool(task.attribute("centred"))

    def build(self) -> Kernel:
        b, frame = self.b, self.frame
        batches, classes, _ = self.scores.shape
        with b.parallel() as _:
            total = b.variable(0, I64, name="total")
            with b.for_(0, frame.dim(batches)) as batch, b.for_(0, frame.dim(classes)) as kind:
                self._class(batch, kind, total)
            frame.store_raw(self.count, [], total.get())
        return frame.kernel(1, sizes.multiply(volume(self.scores.shape), 20))

    def _class(self, batch: Operand, kind: Operand, total) -> None:  # type: ignore[no-untyped-def]  # any of the builder's variables
        b, frame = self.b, self.frame
        candidates, most = frame.dim(self.scores.shape[2]), frame.load(self.most, [])
        first = total.get()
        at = b.variable(0, I64, name="at")

        def more() -> Operand:
            room = b.compare("lt", b.binary("sub", total.get(), first), most)
            left = b.compare("lt", at.get(), candidates)
            return b.binary("and", b.binary("and", room, left), b.may_go_on())

        with b.while_(more):
            place = [batch, kind, at.get()]
            box = frame.load_raw(self.order, place)
            at.set(b.binary("add", at.get(), 1))
            good = b.variable(1, I64, name="good")
            if self.scored:
                passes = b.compare("gt", frame.load(self.scores, place), frame.load(self.least, []))
                with b.if_(b.binary("xor", passes, True)):
                    good.set(0)
                    at.set(candidates)  # those that follow are no better
            before = b.variable(first, name="before")

            def compared() -> Operand:
                left = b.compare("lt", before.get(), total.get())
                return b.binary("and", left, b.ne(good.get(), 0))

            mine = self._corners(batch, box)
            with b.while_(compared):
                other = frame.load_raw(self.selected, [before.get(), b.value(I64, 2)])
                with b.if_(self._overlaps(mine, self._corners(batch, other))):
                    good.set(0)
                before.set(b.binary("add", before.get(), 1))
            with b.if_(b.ne(good.get(), 0)):
                for number, value in enumerate((batch, kind, box)):
                    frame.store_raw(self.selected, [total.get(), b.value(I64, number)], value)
                total.set(b.binary("add", total.get(), 1))

    def _corners(self, batch: Operand, box: Operand) -> tuple[Operand, ...]:
        """Lowest and highest first coordinate, then those of the second one."""
        b, frame = self.b, self.frame
        given = [frame.load(self.boxes, [batch, box, b.value(I64, k)]) for k in range(4)]
        if self.centred:
            x, y, width, height = given
            half_x, half_y = (b.binary("mul", v, b.value(F32, 0.5)) for v in (width, height))
            return (
                b.binary("sub", x, half_x), b.binary("add", x, half_x),
                b.binary("sub", y, half_y), b.binary("add", y, half_y),
            )  # fmt: skip
        pairs = ((given[0], given[2]), (given[1], given[3]))
        return tuple(b.binary(op, *pair) for pair in pairs for op in ("min", "max"))

    def _overlaps(self, one: tuple[Operand, ...], two: tuple[Operand, ...]) -> Operand:
        """Whether the intersection, as a part of the union, exceeds the limit."""
        b, zero = self.b, self.b.value(F32, 0.0)

        def extent(low: Operand, high: Operand) -> Operand:
            return b.binary("max", b.binary("sub", high, low), zero)

        def area(box: tuple[Operand, ...]) -> Operand:
            return b.binary("mul", extent(box[0], box[1]), extent(box[2], box[3]))

        common = []
        for k in (0, 2):
            low, high = b.binary("max", one[k], two[k]), b.binary("min", one[k + 1], two[k + 1])
            common.append(extent(low, high))
        shared = b.binary("mul", *common)
        union = b.binary("sub", b.binary("add", area(one), area(two)), shared)
        limit = b.binary("mul", self.frame.load(self.overlap, []), union)
        # Without a union there is nothing to divide by, and nothing overlaps.
        return b.binary("and", b.compare("gt", shared, limit), b.compare("gt", shared, zero))
