"""What planning passes did in a model, and which candidates selection looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx

from sardonyx.compiler.build import compile_lowered
from sardonyx.compiler.compile_graph import Compiled
from sardonyx.compiler.compile_options import CompileOptions
from sardonyx.compiler.targets import target_of
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.plan.groups import CustomKernel, Group
from sardonyx.plan.pipeline import append_in_place
from sardonyx.plan.reasons import PassOutcome, Reasons
from sardonyx.selection.table import Considered, SelectionTrace


@dataclass(frozen=True)
class Noted:
    """A compiled model with its notes."""

    compiled: Compiled
    reasons: Reasons
    trace: SelectionTrace

    def group(self, node: str) -> Group:
        """The group that a node is in: of several a loop, else that of the main plan."""
        found = [
            g
            for block in self.compiled.block.blocks()
            for g in block.groups
            if any(node in block.origins.get(r.tensor, ()) for r in g.roots)
        ]
        own = set(self.compiled.block.groups)
        return max(found, key=lambda g: (isinstance(g, CustomKernel), g in own))

    def passes(self, node: str) -> dict[str, PassOutcome]:
        """What passes did to it, by name."""
        group = self.group(node)
        found = [*self.reasons.of(group), *self.trace.passes(group)]
        return {outcome.name: outcome for outcome in found}

    def candidates(self, node: str, *, own: bool = True) -> dict[str, Considered]:
        """Candidates for it, or for what is packed and copied for it, by name."""
        found = self.trace.of(self.group(node))
        return {c.name: c for c in found if c.is_own is own}


def noted(model: onnx.ModelProto, target: str, **options: Any) -> Noted:
    """A model compiled for a named target, with `CompileOptions` by name."""
    graph = load(model.SerializeToString())
    optimise(graph)
    lowered = lower(graph)
    reasons, trace = Reasons(), SelectionTrace()
    append_in_place(list(lowered.inputs.values()), list(lowered.outputs.values()), reasons)
    own = CompileOptions(reasons=reasons, trace=trace, **options)
    return Noted(compile_lowered(graph, lowered, target_of(target), own)[0], reasons, trace)
