"""Why native code refused to resolve, or ended a run, in words."""

from __future__ import annotations

from sardonyx.base.errors import (
    ContradictingSizes,
    DivisionByZero,
    EngineError,
    IndexOutOfRange,
    InvalidArgument,
    OutOfMemory,
    RuntimeException,
    SardonyxError,
    UndecidedBranch,
    UnexpectedOne,
    message,
)
from sardonyx.base.sizes import Dim
from sardonyx.kernel.language.context import FAULTS, name_of_range
from sardonyx.native.execute import CANCELLED
from sardonyx.native.layout import (
    AXIS,
    BAD_ARENA,
    BAD_BLOCKS,
    BAD_MEASURE,
    BAD_OFFSET,
    BAD_SIZE,
    DIVISION,
    LARGEST_BYTES,
    OVERFLOW,
    UNEQUAL,
)
from sardonyx.plan.control_flow import GUARD, MEASURE, OFFSET, fault_of_control
from sardonyx.plan.plan import Command, Guard, Plan, PointerArgument, SizeArgument
from sardonyx.plan.steps import Measure
from sardonyx.runtime.arena import Words
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.largest import largest_values, writer_of
from sardonyx.runtime.plan_tables import PlanTables
from sardonyx.runtime.size_sources import find_maker
from sardonyx.tensor.assumptions import SEVERAL, WITHOUT_PLAN
from sardonyx.tensor.measuring import LARGEST

#: Fault codes -> errors; of others RuntimeException.
_FAULT_ERRORS: dict[int, type[RuntimeException]] = {1: IndexOutOfRange, 2: DivisionByZero}


def refusal(code: int, frame: Frame, image: PlanTables) -> SardonyxError:
    """The error for a code that `resolve` gave."""
    number, plan, slots = frame.get("detail_a"), image.plan, frame.table("slots")
    kind: type[SardonyxError]
    if code == AXIS:
        which, axis, slot = image.axes[number]
        spec = plan.inputs[which]
        dim = spec.dims[axis]
        got = int(frame.table("dims")[number])
        kind = InvalidArgument if isinstance(dim, int) else ContradictingSizes
        return kind(
            message(
                f"input {spec.name}",
                f"Axis {axis} of the feed has the wrong size",
                expected=_value(dim, int(slots[slot])),
                got=str(got),
            )
        )
    if code == UNEQUAL:
        guard = image.guards[number]
        sides = (guard.left, guard.right)
        left, right = (int(slots[image.tape.slot(x, guard.segment)]) for x in sides)
        return _unequal(guard, left, right, frame, image)
    if code in (OVERFLOW, DIVISION):
        where, text = _impossible(code, number, image, slots)
        return image.misfit(slots, 0)(message(where, text))
    if code == BAD_SIZE:
        buffer = plan.buffers[number]
        dim = buffer.size_bytes
        grown = buffer.kind == "grown"
        size = frame.get("detail_b") if grown else int(slots[image.tape.slot(dim, buffer.segment)])
        text = f"These feeds ask for a buffer of {_value(dim, size)} bytes"
        blamed = find_maker(image, slots, buffer.segment, LARGEST_BYTES)
        where = (blamed and blamed.where) or writer_of(plan, number) or "run"
        if blamed is not None and blamed.shape:
            text += f": it makes the shape {_shape(blamed.shape)}"
        kind = image.misfit(slots, 0) if size < 0 else OutOfMemory
        return kind(message(where, text))
    if code == BAD_ARENA:
        text = f"These feeds ask for {number} bytes of intermediate values"
        first = largest_values(image, slots, frozenset([0]))
        return OutOfMemory(message("run", text + (first and f". {first}")))
    if code == BAD_BLOCKS:
        command = plan.commands[number]
        where = command.where if isinstance(command, Command) else str(command)
        return image.misfit(slots, 0)(message(where, "These feeds give it a negative size"))
    if code == BAD_MEASURE:
        return _mismeasured(plan, image.measures[number], frame.get("detail_b"))
    if code == BAD_OFFSET:
        return EngineError(message("plan", "A command's argument lies outside its buffer"))
    return EngineError(message("run", f"The native code gave {code}"))


def _impossible(code: int, number: int, image: PlanTables, slots: Words) -> tuple[str, str]:
    """Where, and what, an instruction of the tape that has no result belongs to."""
    tape = image.tape
    size = tape.expressions[number]
    segment = next(k for k, (first, end) in enumerate(tape.ranges) if first <= number < end)
    blamed = find_maker(image, slots, segment, LARGEST_BYTES)
    where = _user(image.plan, size) if blamed is None else blamed.where
    if code != OVERFLOW:
        return where, f"The size {_named(size)}divides by zero or a negative number for these feeds"
    if blamed is None or not blamed.shape:
        return where, f"The size {_named(size)}is too large for these feeds"
    return where, f"The shape {_shape(blamed.shape)} that it makes is too large for these feeds"


#: Longer expressions tell a reader nothing.
_MOST_LETTERS = 60


def _named(size: Dim) -> str:
    """A size as the names of dimensions say it, if they do in a few words."""
    text = repr(size)
    return f"{text} " if len(text) <= _MOST_LETTERS else ""


def _shape(shape: tuple[int, ...]) -> str:
    """A shape whose sizes may have any number of digits."""
    return f"[{', '.join(str(d) if abs(d) < 2**63 else 'over 2^63' for d in shape)}]"


def _user(plan: Plan, size: Dim) -> str:
    """The first command that asks for a size."""
    for command in plan.commands:
        if isinstance(command, Command):
            asked = [command.blocks, command.cost_ns, command.scratch_bytes]
            for a in command.arguments:
                if isinstance(a, SizeArgument):
                    asked.append(a.value)
                elif isinstance(a, PointerArgument):
                    asked += [a.offset_bytes, plan.buffers[a.buffer].size_bytes]
            if any(size is d for d in asked):
                return command.where
    return "run"


def _unequal(guard: Guard, left: int, right: int, frame: Frame, image: PlanTables) -> SardonyxError:
    what = "The feeds' shapes contradict each other"
    if guard.reason:
        what += f": {guard.reason}"
    if SEVERAL in guard.reason and guard.right == 1:
        return UnexpectedOne(message("run", what), repr(guard.left))
    if WITHOUT_PLAN in guard.reason:
        return UndecidedBranch(message("run", what))
    kind = image.misfit(frame.table("slots"), guard.segment, guard)
    if guard.right == 0:  # not two sizes, but a condition
        return kind(message("run", what))
    return kind(
        message("run", what, expected=_value(guard.left, left), got=_value(guard.right, right))
    )


def _mismeasured(plan: Plan, measure: Measure, value: int) -> InvalidArgument:
    high = measure.high
    expected = f"from {measure.low!r} to {high!r}"
    is_beyond = isinstance(high, int) and high != LARGEST and value > high  # an axis, as a rule
    kind = IndexOutOfRange if is_beyond else InvalidArgument
    what = f"It computes the size {value}"
    where = f"node {', '.join(measure.origin)}"
    named = (m.where for m in plan.makers if m.where.startswith(f"{where} ("))  # with its operator
    return kind(message(next(named, where), what, expected=expected))


def control_fault(code: int, a: int, b: int, frame: Frame, image: PlanTables) -> SardonyxError:
    """The error for a fault that a control kernel of a device found: `runtime.control_kernels`."""
    kind, number = fault_of_control(code)
    if kind == GUARD:
        return _unequal(image.guards[number], a, b, frame, image)
    if kind == MEASURE:
        return _mismeasured(image.plan, image.measures[number], a)
    if kind == OFFSET:
        return EngineError(message("plan", "A command's argument lies outside its buffer"))
    what = "A size that the run computes is too large, or divides by zero or a negative number"
    return InvalidArgument(message("run", what))


def _value(dim: Dim, value: int) -> str:
    return str(value) if isinstance(dim, int) else f"{value} ({dim!r})"


def fault(code: int, frame: Frame, plan: Plan, cancel: CancelFlag | None) -> Exception:
    """The error for a run that ended with a code."""
    if code == CANCELLED:
        return (cancel or CancelFlag()).error("run")
    command = plan.commands[frame.get("fault_command")]
    if not isinstance(command, Command):
        return RuntimeException(message("run", f"Step {command} failed with code {code}"))
    a, b, c = (frame.get(f"fault_{name}") for name in "abc")
    name = name_of_range(code)
    if name is not None:
        what, expected = f"{name} is out of range", f"{b} to {c}"
        return IndexOutOfRange(message(command.where, what, expected=expected, got=str(a)))
    text = FAULTS.get(code, f"fault {code}").format(a=a, b=b)
    return _FAULT_ERRORS.get(code, RuntimeException)(message(command.where, text))


def wrong_number_of_feeds(expected: int, got: int) -> InvalidArgument:
    """The error of a run with too many or too few feeds."""
    what = "The number of feeds is wrong"
    return InvalidArgument(message("run", what, expected=str(expected), got=str(got)))
