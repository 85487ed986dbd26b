"""Registers for matrices: code for them can be made anywhere, and runs where they are."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from sardonyx.base.errors import EngineError
from sardonyx.compiler import bundle_writer
from sardonyx.compiler.options import EngineOptions
from sardonyx.kernel.language import matrix_registers
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.matrix_registers import BYTES, HALVES
from sardonyx.kernel.language.types import I64, PTR
from sardonyx.kernel.matmul.micro_matrix import build_matrix_micro, matrix_micro_name
from sardonyx.llvm.module import emit_module
from sardonyx.targets import machine
from sardonyx.targets.machine import AMX, Machine
from sardonyx.targets.target import check_features, host_target, target_for
from tests.support.kernels import MACHINE, Kernels
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_V4 = "avx512f avx512bw avx512cd avx512dq avx512vl avx512_bf16 avx512_vnni "
_V3 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe "
_RANDOM = np.random.default_rng(41)


def _machine(*more: str) -> Machine:
    return Machine("x86_64", frozenset([*(_V3 + _V4).split(), *more]), MACHINE.caches)


def _rows_with_shapes(kind: str, sixteens: int, vectors: int) -> Builder:
    """The micro-kernel between what every kernel does first and last."""
    names = ["shapes", "left", "panel", "tile", "start"]
    b = Builder("rows", [*((n, PTR) for n in names), ("pitch", I64), ("steps", I64)])
    shapes, left, panel, tile, start = map(b.parameter, names)
    operands = [left, b.parameter("pitch"), b.parameter("steps"), panel, tile]
    operands += [start] if kind == BYTES else []
    matrix_registers.set_shapes(b, shapes)
    b.call(matrix_micro_name(kind, sixteens, vectors), operands)
    matrix_registers.release(b)
    return b


@pytest.mark.parametrize("kind", [HALVES, BYTES])
def test_code_is_made_for_other_machines(kind):
    target = target_for("avx512", _machine(*AMX))
    assert target.block_sizes.matrices and "+amx-tile" in target.features
    text = emit_module([build_matrix_micro(kind, 2, 3)], target)
    products = {HALVES: "tdpbf16ps", BYTES: "tdpbusd"}[kind]
    # Two sixteens of rows by two vectors, then by the third one; sums of bytes start from numbers.
    assert text.count(f"call void @llvm.x86.{products}(") == 4 + 2
    sums = 6 if kind == BYTES else 0
    assert text.count("call void @llvm.x86.tileloadd64(") == 4 + 3 + sums
    assert text.count("call void @llvm.x86.tilezero(") == 6 - sums


def test_not_where_there_are_none():
    target = target_for("avx512", _machine())
    assert not target.block_sizes.matrices and "amx" not in target.features
    with pytest.raises(EngineError, match="no registers for matrices"):
        emit_module([build_matrix_micro(HALVES, 1, 1)], target)


def test_all_three_features_are_needed():
    assert not target_for("avx512", _machine("amx_tile", "amx_bf16")).block_sizes.matrices
    assert not target_for("avx2", _machine(*AMX)).block_sizes.matrices


def test_the_system_may_refuse_them(monkeypatch):
    """Then the processor's features do not count, and code that needs them is refused."""
    text = f"flags : {_V3} {_V4} {' '.join(AMX)}\n"
    monkeypatch.setattr(machine, "text_of", lambda path: text if "cpuinfo" in str(path) else "")
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    for granted in (True, False):
        monkeypatch.setattr(machine, "_may_use_matrices", lambda granted=granted: granted)
        assert (machine.read_machine().flags >= AMX) == granted


def test_other_systems_have_no_such_call(monkeypatch):
    class Library:
        def __init__(self, *arguments, **options):
            pass

    monkeypatch.setattr(machine.ctypes, "CDLL", Library)
    assert machine._may_use_matrices() is False


@pytest.mark.parametrize("rounds", [False, True])
def test_bundles_ask_for_them_only_if_they_use_them(tmp_path, rounds):
    weights = {"w": _RANDOM.standard_normal((64, 40)).astype(np.float32)}
    text = "g (float[M, 64] a) => (float[M, 40] y) { y = MatMul(a, w) }"
    model = model_of(text, weights).SerializeToString()
    options = EngineOptions(bf16_products=rounds and host_target().has_halves)
    path = tmp_path / "model.sardonyx"
    with path.open("w+b") as file:
        bundle_writer.write_bundle(model, file, options)
    uses = host_target().block_sizes.matrices and options.bf16_products
    assert (b"+amx-tile" in path.read_bytes()[:65536]) == uses


needs_matrices = pytest.mark.skipif(
    not host_target().block_sizes.matrices, reason="the processor has no registers for matrices"
)


@needs_matrices
def test_features_are_checked():
    check_features("+amx-tile,+amx-bf16,+amx-int8")


@needs_matrices
@pytest.mark.parametrize("sixteens", [1, 2])
@pytest.mark.parametrize("vectors", [1, 2, 5])
@pytest.mark.parametrize("steps", [0, 1, 7])
@pytest.mark.parametrize("kind", [HALVES, BYTES])
def test_values(kind, sixteens, vectors, steps):
    programs = [build_matrix_micro(kind, sixteens, vectors)]
    kernels = Kernels(
        [*programs, _rows_with_shapes(kind, sixteens, vectors).program], host_target()
    )
    rows, columns = 16 * sixteens, 16 * vectors
    group, depth = (2, 32 * steps) if kind == HALVES else (4, 64 * steps)
    if kind == HALVES:
        left = _RANDOM.standard_normal((rows, depth + 64)).astype(ml_dtypes.bfloat16)
        right = _RANDOM.standard_normal((depth, columns)).astype(ml_dtypes.bfloat16)
        tile = np.full((rows, columns), np.nan, np.float32)
        start = np.zeros(columns)
    else:
        left = _RANDOM.integers(0, 256, (rows, depth + 64)).astype(np.uint8)
        right = _RANDOM.integers(-128, 128, (depth, columns)).astype(np.int8)
        tile = np.full((rows, columns), -1, np.int32)
        start = _RANDOM.integers(-(10**6), 10**6, columns).astype(np.int32)
    panel = right.reshape(depth // group, group, columns).transpose(0, 2, 1).copy()
    pointers = [np.zeros(8, np.int64), left, panel, tile, start]
    call = kernels.function("rows", None, *[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 2)
    call(*(x.ctypes.data for x in pointers), left.strides[0], steps)
    exact = left[:, :depth].astype(np.float64) @ right.astype(np.float64) + start
    assert_near(tile, exact, "float: halves within" if kind == HALVES else "exact")
