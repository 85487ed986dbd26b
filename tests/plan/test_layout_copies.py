"""How often the plans of two published networks move elements without computing anything.

`graphs/` holds them as exporters wrote them, without weights: planning does not look at those.
"""

from __future__ import annotations

import math
from pathlib import Path

import onnx
import pytest

from sardonyx.compiler.build import compile_lowered
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.plan.groups import LoopNest
from sardonyx.plan.inline import is_view
from sardonyx.targets.target import host_target

_GRAPHS = Path(__file__).parent / "graphs"


def _with_weights(name: str, folder: Path) -> Path:
    """The graph with weights in a file of nothing, which takes no room on the disk."""
    model = onnx.load(_GRAPHS / f"{name}.onnx")
    largest = 0
    for tensor in model.graph.initializer:
        values = math.prod(tensor.dims)
        stored = len(tensor.raw_data) or len(tensor.float_data) or len(tensor.int64_data)
        if stored or not values:
            continue
        size = 4 * values
        largest = max(largest, size)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        del tensor.external_data[:]
        for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", str(size))):
            tensor.external_data.add(key=key, value=value)
    with open(folder / "weights.bin", "wb") as file:
        file.truncate(largest)
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(("name", "most"), [("resnet50", 2), ("bert_base", 0)])
def test_copies_of_published_networks(name, most, tmp_path):
    graph = load(_with_weights(name, tmp_path))
    optimise(graph)
    compiled, _ = compile_lowered(graph, lower(graph), host_target())
    groups = [i.group for i in compiled.invocations if any(r.constant is None for r in i.reads)]
    assert len(groups) > 50
    moved = [
        g for g in groups if isinstance(g, LoopNest) and all(is_view(s.body) for s in g.stages)
    ]
    assert len(moved) <= most
