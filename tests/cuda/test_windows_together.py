"""Windows of neighbours that a block computes together, so that what they share is read once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.compiler.build import compile_lowered
from sardonyx.kernel.language.text import to_text
from sardonyx.llvm.ptx import emit_ptx, ptx_target
from sardonyx.llvm.ptx_device import ptx_tiling
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from tests.support.emulated import Emulated
from tests.support.ptxas import ARCHITECTURES, assemble, with_ptxas
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(3)


def _depthwise(
    channels: int, size: int, taps: int, attributes: str, kind: str = "float", batch: str = "N"
) -> tuple[str, dict[str, Any]]:
    dtype = np.float32 if kind == "float" else np.float16
    text = (
        f"g ({kind}[{batch},{size or 'H'},{size or 'W'},{channels}] x) => ({kind}[B,P,Q,C] y)"
        f" {{ u = Transpose<perm=[0,3,1,2]>(x) a = Conv<group={channels}, {attributes}>(u, w, b)"
        " r = Relu(a) y = Transpose<perm=[0,2,3,1]>(r) }"
    )
    filters = _random.standard_normal((channels, 1, taps, taps)).astype(dtype)
    return text, {"w": filters, "b": _random.standard_normal(channels).astype(dtype)}


def _pool(op: str, attributes: str) -> tuple[str, dict[str, Any]]:
    text = (
        "g (float[N,6,6,8] x) => (float[N,P,Q,C] y) { u = Transpose<perm=[0,3,1,2]>(x)"
        f" a = {op}<kernel_shape=[3,3], {attributes}>(u) y = Transpose<perm=[0,2,3,1]>(a) }}"
    )
    return text, {}


#: Graph and weights, the shape of the feed, and how many neighbours are computed together: in both
#: forms, where a run knows the batch and there are vectors.
CASES: dict[str, tuple[tuple[str, dict[str, Any]], tuple[int, ...], int]] = {
    "seven taps": (_depthwise(8, 7, 7, "pads=[3,3,3,3]"), (2, 7, 7, 8), 7 + 7),
    "three taps": (_depthwise(8, 8, 3, "pads=[1,1,1,1]"), (2, 8, 8, 8), 8 + 8),
    "no border": (_depthwise(4, 8, 3, "dilations=[1,1]"), (3, 8, 8, 4), 6 + 6),
    "steps of two": (_depthwise(5, 12, 5, "pads=[2,2,2,2], strides=[2,2]"), (1, 12, 12, 5), 6),
    "taps apart": (_depthwise(8, 6, 3, "pads=[2,2,2,2], dilations=[2,2]"), (2, 6, 6, 8), 6 + 6),
    "half floats": (_depthwise(16, 7, 7, "pads=[3,3,3,3]", "float16"), (2, 7, 7, 16), 7 + 7),
    "one image": (_depthwise(8, 8, 3, "pads=[1,1,1,1]", batch="1"), (1, 8, 8, 8), 8),
    "a prime": (_depthwise(4, 11, 3, "pads=[1,1,1,1]"), (2, 11, 11, 4), 0),
    "an image of any size": (_depthwise(4, 0, 3, "pads=[1,1,1,1]"), (1, 7, 9, 4), 0),
    "largest": (_pool("MaxPool", "pads=[1,1,1,1]"), (2, 6, 6, 8), 6 + 6),
    "means": (_pool("AveragePool", "pads=[1,1,1,1]"), (2, 6, 6, 8), 6 + 6),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_equals_what_the_processor_computes(name: str) -> None:
    (text, weights), shape, count = CASES[name]
    model = model_of(text, weights, opset=17)
    emulated = Emulated(model, ptx_tiling(processors=1))
    x = _random.standard_normal(shape).astype(np.float16 if "half" in name else np.float32)
    (found,) = emulated.run({"x": x})
    (expected,) = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    like = "half: layers" if "half" in name else "float: sums"
    assert_near(found, expected, like)
    (program,) = (p for p in emulated.compiled.programs() if p.name.startswith("rows"))
    stores = [x for x in to_text(program).splitlines() if x.strip().startswith("store")]
    assert not count or len(stores) == count


@with_ptxas
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_load_hangs_on_a_branch(architecture: str) -> None:
    text, weights = _depthwise(64, 14, 7, "pads=[3,3,3,3]")
    graph = load(model_of(text, weights, opset=17).SerializeToString())
    optimise(graph)
    target = ptx_target(architecture)
    compiled, _ = compile_lowered(graph, lower(graph), target)
    programs = [p for p in compiled.programs() if p.name.startswith("rows")]
    ptx = emit_ptx(programs, target)
    assert ptx.count("ld.global") >= 13 * 7 + 49
    assert ptx.count("bra") < 24
    assert "0 bytes spill stores" in assemble(ptx, architecture)


@with_ptxas
@pytest.mark.parametrize(
    ("batch", "size", "resident"),
    [("1", 16, 1), ("1", 56, 2), ("1", 224, 0), ("32", 56, 0), ("N", 16, 0)],
    ids=["few blocks", "two each", "many", "many images", "a run decides"],
)
def test_few_threads_have_many_registers(batch: str, size: int, resident: int) -> None:
    """So that all that they read is under way at once: ptxas keeps 48 of 255 otherwise."""
    text, weights = _depthwise(96, size, 7, "pads=[3,3,3,3]", "float16", batch)
    graph = load(model_of(text, weights, opset=17).SerializeToString())
    optimise(graph)
    target = ptx_target("sm_90")
    compiled, _ = compile_lowered(graph, lower(graph), target)
    (program,) = (p for p in compiled.programs() if p.name.startswith("rows"))
    assert program.resident == resident
    ptx = emit_ptx([program], target)
    assert (f".minnctapersm {resident}" in ptx) == bool(resident)
    said = assemble(ptx, "sm_90")
    used = int(said.split("Used ")[1].split(" ")[0])
    assert used > 128 or not resident
