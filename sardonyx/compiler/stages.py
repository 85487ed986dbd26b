"""Every stage of a compilation as text."""

from __future__ import annotations

from typing import Any

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.printable import printable_lines
from sardonyx.base.records import dataclass
from sardonyx.compiler.build import compile_lowered
from sardonyx.compiler.compile_graph import Compiled
from sardonyx.compiler.compile_options import CompileOptions
from sardonyx.compiler.targets import DEVICES, PROCESSORS, target_of
from sardonyx.compiler.text_groups import Notes, OfferNotes, WorkText
from sardonyx.compiler.text_tensors import tensors_text
from sardonyx.ir.graph import Graph
from sardonyx.ir.text import graph_text
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.text import to_text
from sardonyx.llvm.compile import emit_assembly
from sardonyx.llvm.module import emit_module
from sardonyx.llvm.ptx import emit_ptx, text_for_ptx
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import LoweredGraph, lower
from sardonyx.passes.pipeline import PASSES, PassLook, optimise
from sardonyx.plan.pipeline import append_in_place
from sardonyx.plan.plan import Command, Plan
from sardonyx.plan.reasons import Reasons
from sardonyx.plan.rings import RINGS
from sardonyx.selection.table import SelectionTrace
from sardonyx.targets.target import Target, host_target

#: In the order in which a model goes through them.
STAGES = (
    "graph", "tensors", "groups", "layout", "choices", "plan", "kernels", "llvm", "ptx", "asm",
)  # fmt: skip
#: What `ptx` is for if no target is named.
DEFAULT_DEVICE = DEVICES[0]


def stage_text(source: Any, stage: str, after: str | None = None, target: str | None = None) -> str:
    """A model at one of STAGES.

    Args:
        source: What `loader.load` takes.
        stage: One of STAGES.
        after: For the graph: the pass after which to stop; "load" for none.
        target: One of `compiler.targets.TARGETS`; None for this machine, and for `ptx` the first
            of DEVICES. GPUs are planned for as where none of NVIDIA's libraries is installed.

    Raises:
        InvalidArgument: There is no such stage, pass or target, or no such stage of this target.
    """
    _check(stage, after, target)
    name = DEFAULT_DEVICE if stage == "ptx" and target is None else target
    graph = load(source)
    graph.overridable.clear()
    if after != "load":
        optimise(graph, join=name in DEVICES, look=PassLook(after=after))
    if stage == "graph":
        return graph_text(graph)
    lowered = lower(graph)
    if stage == "tensors":
        return printable_lines(tensors_text(lowered))
    planned = _planned(graph, lowered, name)
    compiled, chosen = planned.compiled, planned.target
    match stage:
        case "groups":
            return printable_lines(planned.work.groups())
        case "layout":
            return printable_lines(planned.work.layouts())
        case "choices":
            return printable_lines(planned.work.choices())
        case "plan":
            parts = [
                "once, when the session is made:\n" + plan_text(preparation.plan)
                for preparation in compiled.preparations
            ]
            return "\n\n".join([*parts, "every run:\n" + plan_text(compiled.main)])
        case "kernels":
            return "\n\n".join(map(to_text, compiled.programs()))
    if chosen.has_thread_blocks:
        return _device_code(compiled, chosen, stage)
    text = emit_module(compiled.programs(), chosen)
    return text if stage == "llvm" else emit_assembly(text, chosen)


@dataclass(frozen=True, slots=True)
class Planned:
    """A model that is planned to be looked at.

    Attributes:
        compiled: The plan.
        work: What prints it.
        target: What it is for.
    """

    compiled: Compiled
    work: WorkText
    target: Target


def planned(graph: Graph, target: str | None = None, level: int = 99) -> Planned:
    """A graph's plan, as `stage_text` has it.

    Args:
        graph: As it was loaded; its passes are run.
        target: See `stage_text`.
        level: onnxruntime's optimisation level.

    Raises:
        InvalidArgument: There is no such target.
    """
    graph.overridable.clear()
    optimise(graph, level, join=target in DEVICES)
    return _planned(graph, lower(graph), target, fuse=level > 0)


def _planned(
    graph: Graph, lowered: LoweredGraph, name: str | None, *, fuse: bool = True
) -> Planned:
    target = host_target() if name is None else target_of(name)
    is_device = target.has_thread_blocks
    offers = OfferNotes() if is_device else None
    without = frozenset((RINGS,) if is_device else ())  # as `cuda.provider` plans
    reasons, trace = Reasons(), SelectionTrace()
    append_in_place(list(lowered.inputs.values()), list(lowered.outputs.values()), reasons)
    options = CompileOptions(
        fuse, fuse, accelerator=offers, without=without, reasons=reasons, trace=trace
    )
    compiled, _ = compile_lowered(graph, lowered, target, options)
    work = WorkText(compiled, lowered, Notes(offers, reasons, trace), on_device=is_device)
    return Planned(compiled, work, target)


def _check(stage: str, after: str | None, target: str | None) -> None:
    if stage not in STAGES:
        expected = f"one of {', '.join(STAGES)}"
        raise InvalidArgument(message("--stage", "No such stage", expected=expected, got=stage))
    names = ["load", *(name for name, _, _ in PASSES)]
    if after is not None and after not in names:
        expected = f"one of {', '.join(map(repr, names))}"
        raise InvalidArgument(message("--after", "No such pass", expected=expected, got=after))
    if target is None:
        return
    target_of(target)
    only = {"ptx": DEVICES, "asm": PROCESSORS}.get(stage)
    if only is not None and target not in only:
        what = f"There is no stage {stage} of this target"
        expected = f"one of {', '.join(only)}"
        raise InvalidArgument(message("--target", what, expected=expected, got=target))


def _device_code(compiled: Compiled, target: Target, stage: str) -> str:
    """LLVM IR or PTX of what runs on a GPU; kernels that prepare constants run elsewhere."""
    from sardonyx.cuda.provider import CudaProvider
    from sardonyx.runtime.device_control_flow import control_programs

    CudaProvider.check_plan(compiled)
    programs: list[Program] = compiled.programs({c.kernel for c in compiled.main.calls})
    if len(compiled.main.segments) > 1:
        programs += control_programs(compiled.main)
    return text_for_ptx(programs, target) if stage == "llvm" else emit_ptx(programs, target)


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
