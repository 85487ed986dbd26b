"""What tiles of products ask for ahead of time."""

import pytest

from sardonyx.kernel.language.types import F32, F64, U8
from sardonyx.kernel.matmul.micro import build_micro
from sardonyx.kernel.matmul.micro_integer import build_integer_micro
from sardonyx.llvm.module import emit_module
from sardonyx.targets.machine import Caches, Machine
from sardonyx.targets.target import target_for

#: Text alone: the machine need not have the instructions.
_AVX512, _AVX2 = (
    target_for(isa, Machine("x86_64", frozenset(), Caches())) for isa in ("avx512", "avx2")
)


def asked(program, target):
    """How often a micro-kernel asks in each step for lines of the first cache, and of the second
    (`llvm.prefetch`'s third operand).
    """
    text = emit_module([program], target)
    lines = [line for line in text.splitlines() if "call void @llvm.prefetch" in line]
    caches = [line.rsplit("i32 ", 2)[1].rstrip(", ") for line in lines]
    assert set(caches) <= {"2", "3"}
    return caches.count("3"), caches.count("2")


@pytest.mark.parametrize(
    ("rows", "vectors", "wanted"),
    [
        (1, 4, (0, 0)),  # one row waits for nothing else
        (2, 4, (4, 0)), (3, 2, (2, 0)),  # few rows: for their own panel alone
        (4, 4, (4, 1)), (6, 4, (4, 1)), (6, 1, (1, 1)),
    ],
)  # fmt: skip
def test_lines_of_a_step(rows, vectors, wanted):
    assert asked(build_micro(F32, rows, vectors, 16), _AVX512) == wanted


def test_doubles_codes_and_parts_of_a_tile():
    assert asked(build_micro(F64, 6, 4, 8), _AVX512) == (4, 1)
    assert asked(build_micro(F32, 6, 2, 8), _AVX2) == (1, 1)
    # Each pass over the depth asks for what it reads, the first one for the share, too.
    assert asked(build_micro(F32, 6, 4, 8, at_once=2), _AVX2) == (2, 1)
    assert asked(build_integer_micro(U8, 6, 3, 16, zeros=False), _AVX512) == (3, 1)
    assert asked(build_micro(F32, 6, 4, 16, apart=True), _AVX512) == (4, 0)
