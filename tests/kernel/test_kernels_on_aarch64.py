"""Kernels of every form, generated for AArch64 and run under qemu, against the evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sardonyx.base import dtypes, sizes
from sardonyx.compiler.compile_graph import TensorGraph, compile_tensors
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.context import FIELDS, SIZE_BYTES
from sardonyx.kernel.language.program import Program
from sardonyx.kernel.language.types import I64, PTR
from sardonyx.link.blob import build
from sardonyx.llvm.module import emit_module
from sardonyx.selection.invocation import Invocation
from sardonyx.targets.machine import Caches, Machine
from sardonyx.targets.target import target_for
from sardonyx.tensor import language as t
from sardonyx.tensor.evaluate import evaluate
from sardonyx.tensor.tensor import Buffer, Tensor, buffer
from tests.support import foreign
from tests.support.tolerances import assert_near

NEON = target_for("neon", Machine("aarch64", frozenset(), Caches()))
N, S = sizes.symbol("N"), sizes.symbol("S")
SYMBOLS = {"N": 3, "S": 13}


def _softmax(x: Tensor) -> Tensor:
    power = t.exp(x - x.max(-1, True))
    return power / power.sum(-1, True)


def _norm(x: Tensor) -> Tensor:
    away = x - x.mean(-1, True)
    return away / t.sqrt((away * away).mean(-1, True) + 1e-5)


X = buffer("x", (N, S, 22), dtypes.FLOAT)
W = buffer("w", (22, 37), dtypes.FLOAT)
CASES: dict[str, Tensor] = {
    "pointwise": t.tanh(X) * 2.0 + t.erf(X),
    "softmax": _softmax(X),
    "normalisation": _norm(X),
    "sum over the middle": X.sum(1),
    "product": t.maximum(t.matmul(X, W), 0.0),
    "scores": t.matmul(X, t.transpose(X, (0, 2, 1))),
    "attention": t.matmul(_softmax(t.matmul(X, t.transpose(X, (0, 2, 1))) * 0.2), X),
}


def _shim(invocation: Invocation, blocks: int) -> Program:
    """A function with plain parameters that calls the kernel on all its blocks."""
    names = [
        (f"a{k}", PTR if isinstance(a, Buffer) else I64) for k, a in enumerate(invocation.arguments)
    ]
    b = Builder("shim", [*names, ("scratch", PTR)], result=I64)
    slots = b.local(I64, len(names))
    for k, (name, _) in enumerate(names):
        b.store(b.parameter(name), slots, k)
    context = b.local(I64, SIZE_BYTES // 8)
    fault = b.local(I64, 4)
    for k in range(4):
        b.store(b.value(I64, 0), fault, k)
    b.store(fault, context, 0)
    b.store(b.parameter("scratch"), context, 1)
    b.store(b.offset(fault, 3, 8), context, FIELDS["cancel"] // 8)
    program = invocation.kernel.program.name
    b.call(program, [slots, b.value(I64, 0), b.value(I64, blocks), context])
    b.return_(b.load(I64, fault, 0))
    return b.program


def _run(invocation: Invocation, arrays: dict[Any, Any], folder: Path) -> int:
    kernel = invocation.kernel
    shim = _shim(invocation, sizes.evaluate(kernel.blocks, SYMBOLS))
    programs = {p.name: p for p in (kernel.program, *kernel.functions)}
    blob = build(emit_module([*programs.values(), shim], NEON), NEON)
    scratch = bytes(sizes.evaluate(kernel.scratch_bytes, SYMBOLS) + 64)
    given = [
        arrays[a].tobytes() if isinstance(a, Buffer) else sizes.evaluate(a, SYMBOLS)
        for a in invocation.arguments
    ]
    fault, held = foreign.call(blob, "shim", [*given, scratch], folder)
    buffers = [a for a in invocation.arguments if isinstance(a, Buffer)]
    for target, contents in zip(buffers, held, strict=False):
        if target in invocation.writes:
            shape = arrays[target].shape
            arrays[target] = np.frombuffer(contents, target.dtype.numpy).reshape(shape)
    return fault


@pytest.mark.skipif(foreign.QEMU is None, reason="qemu-aarch64 is not installed")
@pytest.mark.parametrize("name", CASES)
def test_equals_evaluator(name: str, tmp_path: Path) -> None:
    output = CASES[name]
    compiled = compile_tensors(TensorGraph([("y", output)], [("x", X), ("w", W)]), NEON)
    random = np.random.default_rng(3)
    feeds = {
        b: random.standard_normal([sizes.evaluate(d, SYMBOLS) for d in b.shape]).astype(np.float32)
        for b in (X, W)
    }
    arrays: dict[Any, Any] = dict(feeds)
    for invocation in compiled.invocations:
        for target in invocation.writes:
            shape = [sizes.evaluate(d, SYMBOLS) for d in target.shape]
            arrays[target] = np.zeros(shape, target.dtype.numpy)
        assert _run(invocation, arrays, tmp_path) == 0
    got = arrays[compiled.invocations[-1].writes[-1]]
    want = evaluate(output, feeds, SYMBOLS, double=True)
    assert_near(got, want, "float: derivatives")
