"""Every stage of a compilation as text."""

from __future__ import annotations

from typing import Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.printable import printable_lines
from sardonyx.compiler.build import compile_lowered
from sardonyx.ir.text import graph_text
from sardonyx.kernel.language.text import to_text
from sardonyx.llvm.compile import emit_assembly
from sardonyx.llvm.module import emit_module
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import PASSES, optimise
from sardonyx.plan.plan import Command, Plan
from sardonyx.targets.target import host_target

#: In the order in which a model goes through them.
STAGES = ("graph", "plan", "kernels", "llvm", "asm")


def stage_text(source: Any, stage: str, after: str | None = None) -> str:
    """A model at one of STAGES, compiled for this machine.

    Args:
        source: What `loader.load` takes.
        stage: One of STAGES.
        after: For the graph: the pass after which to stop; "load" for none.

    Raises:
        InvalidArgument: There is no such stage or pass.
    """
    names = [name for name, _, _ in PASSES]
    if stage not in STAGES:
        expected = f"one of {', '.join(STAGES)}"
        raise InvalidArgument(message("--stage", "No such stage", expected=expected, got=stage))
    if after is not None and after not in ("load", *names):
        expected = f"one of {', '.join(map(repr, ['load', *names]))}"
        raise InvalidArgument(message("--after", "No such pass", expected=expected, got=after))
    graph = load(source)
    graph.overridable.clear()
    if after != "load":
        optimise(graph, after=after)
    if stage == "graph":
        return graph_text(graph)
    target = host_target()
    compiled, _ = compile_lowered(graph, lower(graph), target)
    if stage == "plan":
        parts = [
            "once, when the session is made:\n" + plan_text(preparation.plan)
            for preparation in compiled.preparations
        ]
        return "\n\n".join([*parts, "every run:\n" + plan_text(compiled.main)])
    programs = compiled.programs()
    if stage == "kernels":
        return "\n\n".join(map(to_text, programs))
    text = emit_module(programs, target)
    return text if stage == "llvm" else emit_assembly(text, target)


def plan_text(plan: Plan) -> str:
    """One line for each buffer and command of a plan."""
    lines = []
    for number, spec in enumerate(plan.buffers):
        lines.append(
            f"  b{number}: {spec.kind} {spec.number}, {spec.size_bytes!r} bytes, "
            f"used by {spec.first} to {spec.last}"
        )
    for number, command in enumerate(plan.commands):
        if not isinstance(command, Command):
            lines.append(f"  {number}: {command}")
            continue
        arguments = ", ".join(_argument(a) for a in command.arguments)
        lines.append(
            f"  {number}: {command.kernel}({arguments}) in {command.blocks!r} blocks"
            f"  # {' '.join(command.origin)}"
        )
    return printable_lines(lines)


def _argument(argument: Any) -> str:
    if hasattr(argument, "buffer"):
        return f"b{argument.buffer}"
    return repr(getattr(argument, "value", getattr(argument, "bits", None)))
