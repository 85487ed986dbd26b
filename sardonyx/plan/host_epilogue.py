"""Host functions at the end of a plan."""

from __future__ import annotations

from sardonyx.base.object_types import ObjectType
from sardonyx.plan.plan import TAKE, Command, HostSignature, Plan, PointerArgument


def epilogue_commands(plan: Plan) -> list[tuple[int, Command, HostSignature]] | None:
    """The host's commands, if they come last, read tensors, and give objects to outputs alone."""
    if len(plan.segments) > 1 or any(x.dtype.is_code for x in plan.inputs):
        return None
    found: list[tuple[int, Command, HostSignature]] = []
    given: list[int] = []
    for number, command in enumerate(plan.commands):
        if not isinstance(command, Command) or (command.host is None and found):
            return None
        if command.host is None:
            continue
        signature = command.host
        is_plain = signature.function != TAKE and all(
            x is not None and not x[0].is_code for x in signature.operands
        )
        if not is_plain or not all(
            r is not None and isinstance(r.dtype, ObjectType) and not r.held
            for r in signature.results
        ):
            return None
        given += targets_of(plan, command, signature)
        found.append((number, command, signature))
    objects = [k for k, x in enumerate(plan.outputs) if isinstance(x.dtype, ObjectType)]
    return found if sorted(given) == objects else None


def targets_of(plan: Plan, command: Command, signature: HostSignature) -> list[int]:
    """The numbers of the outputs that a call's results are; -1 for what is none."""
    at = sum(2 + 2 * operand[1] for operand in signature.operands if operand is not None)
    found = []
    for result in signature.results:
        pointer = command.arguments[at]
        buffer = plan.buffers[pointer.buffer] if isinstance(pointer, PointerArgument) else None
        is_output = buffer is not None and buffer.kind == "output"
        found.append(buffer.number if buffer is not None and is_output else -1)
        at += 2 + 2 * (result.memory_rank if result is not None else 0)
    return found
