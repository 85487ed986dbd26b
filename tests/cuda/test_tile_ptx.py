"""Products in tiles as PTX: the instructions that they are there for, and ptxas takes all of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sardonyx.compiler.build import compile_lowered
from sardonyx.kernel.language.text import to_text
from sardonyx.llvm.ptx import emit_ptx, ptx_target
from sardonyx.llvm.ptx_device import ptx_tiling
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from tests.support.ptxas import ARCHITECTURES, assemble, with_ptxas
from tests.support.session import model_of

_MATMUL = "g ({t}[N,256] x, {t}[256,128] w) => ({t}[N,128] y) {{ y = MatMul(x, w) }}"
_ATTENTION = (
    "g ({t}[12,S,64] q, {t}[12,64,T] k, {t}[12,T,64] v, {t}[1,T] m) => ({t}[12,S,64] y)"
    " {{ a = MatMul(q, k) d = Add(a, m) e = Softmax<axis=-1>(d) y = MatMul(e, v) }}"
)
#: Model, whether tf32 may be used -> what the PTX contains, and what it does not.
MODELS: dict[str, tuple[str, bool, list[str], list[str]]] = {
    "half floats": (
        _MATMUL.format(t="float16"), True,
        ["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "cp.async.cg", "ldmatrix"],
        ["fma.rn"],
    ),
    "bfloat16": (
        _MATMUL.format(t="bfloat16"), True,
        ["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "cp.async.cg"], ["fma.rn"],
    ),
    "tf32": (
        _MATMUL.format(t="float"), True,
        ["mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "cvt.rna.tf32"], ["fma.rn"],
    ),
    "floats": (_MATMUL.format(t="float"), False, ["fma.rn.f32", "cp.async.cg"], ["mma.sync"]),
    "doubles": (_MATMUL.format(t="double"), True, ["fma.rn.f64", "cp.async.cg"], ["mma.sync"]),
    "integers": (_MATMUL.format(t="int32"), True, ["mad.lo.s32", "cp.async.cg"], ["mma.sync"]),
    "attention": (
        _ATTENTION.format(t="float16"), True, ["mma.sync", "ex2.approx", "atom", "max.NaN"], [],
    ),
    "attention in tf32": (_ATTENTION.format(t="float"), True, ["mma.sync", "ex2.approx"], []),
    "convolution": (
        "g (float16[N,16,9,9] x, float16[8,16,3,3] w) => (float16[N,8,9,9] y)"
        " { a = Neg(x) y = Conv<pads=[1,1,1,1]>(a, w) }", True, ["mma.sync", "cp.async"], [],
    ),
    "convolution in bfloat16": (
        "g (bfloat16[N,16,9,9] x, bfloat16[8,16,3,3] w) => (bfloat16[N,8,9,9] y)"
        " { a = Neg(x) y = Conv<pads=[1,1,1,1]>(a, w) }", True,
        ["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "cp.async"], [],
    ),
}  # fmt: skip


#: All of them for one architecture; the others have its units, and assemblers of their own.
_BUILT = [
    *((name, "sm_80") for name in MODELS),
    *((name, other) for other in ARCHITECTURES if other != "sm_80" for name in [*MODELS][::3]),
]


def _generated(name: str, architecture: str) -> str:
    text, tf32, *_ = MODELS[name]
    graph: Any = load(model_of(text).SerializeToString())
    optimise(graph)
    target = ptx_target(architecture, ptx_tiling(tf32=tf32))
    compiled, _ = compile_lowered(graph, lower(graph), target)
    return emit_ptx([p for p in compiled.programs() if p.kind == "block"], target)


def _all_generated() -> str:
    return json.dumps([[n, a, _generated(n, a)] for n, a in _BUILT])


@cache
def _of_another_process(function: str) -> str:
    """Terms of a sum are added in the order in which a process met them first."""
    code = f"import sys; from {__name__} import {function}; sys.stdout.write({function}())"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=True)
    return done.stdout.decode()


def _ptx(name: str, architecture: str) -> str:
    every = json.loads(_of_another_process("_all_generated"))
    return next(text for *key, text in every if key == [name, architecture])


def _golden() -> str:
    text = "g (float16[20,64] x, float16[64,48] w) => (float16[20,48] y) { y = MatMul(x, w) }"
    graph: Any = load(model_of(text).SerializeToString())
    optimise(graph)
    compiled, _ = compile_lowered(graph, lower(graph), ptx_target("sm_80"))
    (program,) = compiled.programs()
    return to_text(program)


def test_golden() -> None:
    """A refactoring must not change a kernel's text. SARDONYX_UPDATE_GOLDEN=1 writes it anew."""
    written = _of_another_process("_golden")
    path = Path(__file__).parent / "golden" / "product_f16.txt"
    if os.environ.get("SARDONYX_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(written)
    assert written == path.read_text()


@pytest.mark.parametrize("name", MODELS)
def test_units_that_multiply(name: str) -> None:
    text = _ptx(name, "sm_80")
    _, _, present, absent = MODELS[name]
    assert [x for x in present if x not in text] == []
    assert [x for x in absent if x in text] == []
    assert ".maxntid 128" in text
    assert ".extern" not in text


@with_ptxas
@pytest.mark.parametrize(("name", "architecture"), _BUILT)
def test_ptxas_takes_it_without_spilling(name: str, architecture: str) -> None:
    said = assemble(_ptx(name, architecture), architecture)
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert spills
    # Where thread blocks share the keys of a query, what joins their parts is long.
    most = 16 if "attention" in name else 0
    assert max(int(x) for pair in spills for x in pair) <= most
