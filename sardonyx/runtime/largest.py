"""Which values of a plan take most memory, for errors about memory."""

from __future__ import annotations

from sardonyx.plan.plan import Command, Plan, PointerArgument
from sardonyx.runtime.arena import Words
from sardonyx.runtime.plan_tables import PlanTables

_LISTED = 3


def largest_values(image: PlanTables, slots: Words, segments: frozenset[int]) -> str:
    """A sentence about the largest values whose sizes these segments have decided.

    Args:
        image: The plan's tables.
        slots: Values of the tape's slots, as last resolved.
        segments: Which segments have been resolved.
    """
    sized: list[tuple[int, int]] = []
    for number, buffer in enumerate(image.plan.buffers):
        if buffer.kind in ("arena", "output") and buffer.segment in segments:
            size = int(slots[image.tape.slot(buffer.size_bytes, buffer.segment)])
            sized.append((size, number))
    sized.sort(reverse=True)
    parts = [
        f"{size} bytes {_name(image.plan, number)}" for size, number in sized[:_LISTED] if size
    ]
    return f"The largest values: {', '.join(parts)}" if parts else ""


def _name(plan: Plan, number: int) -> str:
    """What a buffer is: the output, or what the first command that uses it computes."""
    buffer = plan.buffers[number]
    found = writer_of(plan, number)
    if buffer.kind == "output":
        return f"(output {plan.outputs[buffer.number].name}{found and ', ' + found})"
    return f"({found or 'buffer ' + str(number)})"


def writer_of(plan: Plan, number: int) -> str:
    """The nodes of the first command that uses a buffer: it writes it. Empty if there is none."""
    for command in plan.commands:
        if isinstance(command, Command):
            for argument in command.arguments:
                if isinstance(argument, PointerArgument) and argument.buffer == number:
                    return command.where
    return ""
