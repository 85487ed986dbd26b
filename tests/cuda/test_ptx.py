"""Kernels for GPUs, as far as a machine without one can tell: every program becomes PTX."""

from __future__ import annotations

import re
import shutil
from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from sardonyx.base.errors import EngineError
from sardonyx.compiler.build import compile_lowered
from sardonyx.kernel.gpu.warp import to_warp
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.text import to_text
from sardonyx.kernel.language.types import F16, F32, I64, PTR, Type
from sardonyx.llvm.ptx import LEVEL, emit_ptx, ptx_target, texts_for_ptx
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.runtime.device_control_flow import control_programs
from sardonyx.workers.children import Children
from tests.engine import networks
from tests.support.ptxas import ARCHITECTURES, assemble, with_ptxas
from tests.support.session import model_of
from tests.support.threads import Machine as ThreadMachine


def sparse_product() -> ModelProto:
    """The product of a constant of which the file has few elements."""
    model = model_of("g (float[8,N] b) => (float[4,N] y) { y = Identity(b) }")
    node = helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft")
    model.graph.node[0].CopyFrom(node)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    values = helper.make_tensor("a", TensorProto.FLOAT, [3], [2.0, 3.0, 4.0])
    places = helper.make_tensor("", TensorProto.INT64, [3], [1, 7, 20])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4, 8]))
    return model


#: Graphs whose kernels cover every form: rows, products, windows, attention, special ones, loops.
GRAPHS: dict[str, Any] = {
    "perceptron": networks.perceptron,
    "half floats": lambda: model_of(
        "g (float16[N,64] x, float16[64,K] w) => (float16[N,K] y) { y = MatMul(x, w) }"
    ),
    "doubles and rows": lambda: model_of(
        "g (double[N,M] x) => (double[N,M] y) { y = Softmax<axis=-1>(x) }"
    ),
    "largest of each row": lambda: model_of(
        "g (float[N,M] x) => (float[N,3] v, int64[N,3] i)"
        " { k = Constant<value_ints=[3]>() v, i = TopK(x, k) }"
    ),
    "running sums": lambda: model_of(
        "g (float[N,M] x) => (float[N,M] y) { a = Constant<value_int=1>() y = CumSum(x, a) }"
    ),
    "scattered": lambda: model_of(
        "g (float[N] x, int64[M] i, float[M] u) => (float[N] y)"
        ' { y = ScatterElements<reduction="add">(x, i, u) }',
        opset=18,
    ),
    "sparse rows": sparse_product,
    "what is not zero": lambda: model_of(
        "g (float[N,M] x) => (int64[A,B] y) { y = NonZero(x) }"
    ),
    "attention of half floats": lambda: model_of(
        "g (float16[B,N,64] q, float16[B,64,M] k, float16[B,M,64] v) => (float16[B,N,64] y)"
        " { s = MatMul(q, k) p = Softmax<axis=-1>(s) y = MatMul(p, v) }"
    ),
    "a loop": lambda: model_of(
        "g (float[N] x, int64 n) => (float[N] y) { y = Loop(n, , x) <body = b"
        " (int64 i, bool c, float[N] s) => (bool d, float[N] t) { d = Identity(c) t = Tanh(s) }> }"
    ),
    "recurrent steps": lambda: model_of(
        "g (float[T,B,8] x, float[1,48,8] w, float[1,48,16] r) => (float[T,1,B,16] y)"
        " { y = GRU<hidden_size=16>(x, w, r) }"
    ),
    "boxes": lambda: model_of(
        "g (float[1,N,4] b, float[1,C,N] s, int64 m) => (int64[K,3] y)"
        " { y = NonMaxSuppression(b, s, m) }"
    ),
    "determinants": lambda: model_of("g (float[N,M,M] x) => (float[N] y) { y = Det(x) }"),
    "what is there once": lambda: model_of(
        "g (float[N] x) => (float[U] y, int64[U] i, int64[N] j, int64[U] c)"
        " { y, i, j, c = Unique(x) }"
    ),
    "waves": lambda: model_of(
        "g (float[B,N,1] x) => (float[B,N,2] y) { y = DFT<axis=1>(x) }", opset=17
    ),
    "bytes": lambda: model_of(
        "g (uint8[N,64] a, int8[64,K] b, uint8 z) => (int32[N,K] y)"
        " { y = MatMulInteger(a, b, z) }"
    ),
}  # fmt: skip


#: All of them for one architecture; for the others, those whose instructions depend on it.
_BUILT = [
    *((name, "sm_90") for name in GRAPHS),
    *((name, architecture) for architecture in ARCHITECTURES if architecture != "sm_90"
      for name in ("perceptron", "half floats", "attention of half floats", "scattered", "bytes")),
]  # fmt: skip


@cache
def _ptx(name: str, architecture: str) -> tuple[Any, str]:
    """The programs of a graph, and their text."""
    model: ModelProto = GRAPHS[name]()
    graph = load(model.SerializeToString())
    optimise(graph)
    target = ptx_target(architecture)
    compiled, _ = compile_lowered(graph, lower(graph), target)
    programs = compiled.programs()
    return programs, emit_ptx(programs, target)


@pytest.mark.parametrize(("name", "architecture"), _BUILT)
def test_every_kernel_becomes_an_entry(name: str, architecture: str) -> None:
    programs, text = _ptx(name, architecture)
    assert f".target {architecture}" in text
    for program in programs:
        if program.kind == "kernel":
            assert f".entry {program.name}(" in text
            # Slots, the number of blocks, the context, the table: 64 bits each.
            head = text.split(f".entry {program.name}(")[1].split(")")[0]
            assert head.count(".param .u64") == len(program.parameters) + 3
    assert ".extern" not in text


@with_ptxas
@pytest.mark.parametrize(("name", "architecture"), _BUILT)
def test_ptxas_takes_every_kernel(name: str, architecture: str) -> None:
    programs, text = _ptx(name, architecture)
    said = assemble(text, architecture)
    kernels = [p.name for p in programs if p.kind != "function"]
    assert [x for x in kernels if f"Compiling entry function '{x}'" not in said] == []


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_turns_set_conditions(architecture: str) -> None:
    """The driver has the function that they call; for ptxas it is one of another file."""
    graph = load(GRAPHS["a loop"]().SerializeToString())
    optimise(graph)
    target = ptx_target(architecture)
    compiled, _ = compile_lowered(graph, lower(graph), target)
    controls = control_programs(compiled.main)
    text = emit_ptx([*compiled.programs(), *controls], target)
    assert all(f".entry {turn.name}(" in text for turn in controls)
    assert text.count(".extern .func cudaGraphSetConditional") == 1
    if shutil.which("ptxas") is not None:
        assemble(text, architecture, "-c")


@pytest.mark.parametrize("most", [1, 3, 100])
def test_kernels_in_several_modules(most: int) -> None:
    programs, _ = _ptx("attention of half floats", "sm_90")
    target = ptx_target("sm_90")
    texts = texts_for_ptx(programs, target, most)
    with Children(target) as children:
        found = [children.result(children.submit(text, LEVEL)).decode() for text in texts]
    entries = [re.findall(r"\.entry (\S+)\(", text) for text in found]
    kernels = sorted(p.name for p in programs if p.kind != "function")
    assert sorted(name for names in entries for name in names) == kernels
    assert len(texts) == min(most, len(kernels)) and all(entries)


def test_a_text_that_llvm_refuses_names_the_fault() -> None:
    with Children(ptx_target("sm_90")) as children, pytest.raises(EngineError, match="nonsense"):
        children.result(children.submit("nonsense", LEVEL))


def _reduction(lanes: int) -> Builder:
    b = Builder("total", [("x", PTR), ("y", PTR)], kind="kernel")
    with b.parallel() as block:
        vector = b.load(F32.with_lanes(lanes), b.parameter("x"), block * lanes)
        b.store(b.reduce("reduce_add", vector), b.parameter("y"), block)
    return b


@pytest.mark.parametrize(("lanes", "steps"), [(32, [16, 8, 4, 2, 1]), (8, [4, 2, 1]), (1, [])])
def test_reductions_exchange_between_threads(lanes: int, steps: list[int]) -> None:
    text = emit_ptx([_reduction(lanes).program], ptx_target("sm_80"))
    found = [line.split(",")[-3].strip() for line in text.splitlines() if "shfl.sync.bfly" in line]
    assert found == [str(step) for step in steps]


def test_scalars_are_written_by_one_thread_and_vectors_by_all() -> None:
    b = Builder("write", [("y", PTR)], kind="kernel")
    with b.parallel() as block:
        b.store(b.convert(block, F32), b.parameter("y"), block)
        b.store(b.splat(b.convert(block, F32), 32), b.parameter("y"), block * 32)
    lines = to_text(to_warp(b.program, 32)).splitlines()
    stores = [line for line in lines if "store" in line]
    assert len(stores) == 2
    assert "mask" in stores[0]
    assert "mask" not in stores[1]
    assert sum("sync_warp" in line for line in lines) == 2


def test_vectors_longer_than_a_warp_are_refused() -> None:
    b = Builder("wide", [("x", PTR)], kind="kernel")
    with b.parallel() as block:
        b.store(b.load(F32.with_lanes(64), b.parameter("x"), block), b.parameter("x"), block)
    with pytest.raises(EngineError, match="64 lanes"):
        to_warp(b.program, 32)


def test_scratch_is_a_part_for_each_warp() -> None:
    b = Builder("scratch", [("n", I64)], kind="kernel")
    with b.parallel() as block:
        b.store(block, b.context("scratch"), 0)
    text = to_text(to_warp(b.program, 32))
    assert "scratch_bytes" in text
    assert "mul" in text


_SHUFFLES = {
    "every second of two vectors": (32, [2 * k for k in range(32)]),
    "turned around": (32, list(range(31, -1, -1))),
    "few lanes, repeated": (8, [5, 5, 0, 15, 9, 1, 2, 12]),
    "to fewer lanes": (16, [17, 3, 31, 0]),
}


@pytest.mark.parametrize("element", [F32, F16, I64])
@pytest.mark.parametrize("name", _SHUFFLES)
def test_lanes_are_shuffled_between_threads(name: str, element: Type) -> None:
    lanes, chosen = _SHUFFLES[name]
    b = Builder("mixed", [("x", PTR), ("y", PTR)], kind="kernel")
    with b.parallel():
        x = b.parameter("x")
        first, second = (b.load(element.with_lanes(lanes), x, k) for k in (0, lanes))
        b.store(b.shuffle(first, second, chosen), b.parameter("y"), 0)
    kind = {F32: np.float32, F16: np.float16, I64: np.int64}[element]
    given, found = np.arange(2 * lanes).astype(kind) - 3, np.zeros(len(chosen), kind)
    ThreadMachine(b.program, [given, found]).run(1)
    np.testing.assert_array_equal(found, given[chosen])
    assert "shfl.sync.idx" in emit_ptx([b.program], ptx_target("sm_80"))


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_is_touched_before_what_is_waited_for(name: str) -> None:
    """A kernel may begin before those that write what it reads have ended; its table is there."""
    programs, text = _ptx(name, "sm_90")
    for program in programs:
        if program.kind == "function":
            continue
        body = text.split(f".entry {program.name}(")[1].split(".entry")[0]
        before, after = body.split("griddepcontrol.wait;")
        touched = re.findall(r"(?:ld|st|atom|red|cp|prefetch)[.\w]*\.global\S*", before)
        assert "griddepcontrol.launch_dependents;" in before
        assert all(x.startswith("ld.global") for x in touched)
        assert len(touched) <= len(program.parameters) + 1
        assert "ld." in after or "st." in after
    assert "griddepcontrol" not in _ptx(name, "sm_80")[1]
