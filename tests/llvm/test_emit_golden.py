"""Texts of generated kernels: a refactoring must change none.

SARDONYX_UPDATE_GOLDEN=1 writes them anew.
"""

import os
from pathlib import Path

import pytest

from sardonyx.kernel.language.types import F32
from sardonyx.llvm.module import emit_module
from sardonyx.targets.machine import Caches, Machine
from sardonyx.targets.target import target_for
from tests.llvm.test_emit_control import collatz, early, faulty, total
from tests.llvm.test_math import kernel

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

FOLDER = Path(__file__).parent / "golden"
MACHINE = Machine("x86_64", frozenset(), Caches())
ARM = Machine("aarch64", frozenset(), Caches())
CASES = {
    "total_avx512": ([total()], "avx512", MACHINE),
    "collatz_avx2": ([collatz()], "avx2", MACHINE),
    "early_neon": (early(), "neon", ARM),
    "faulty_avx2": ([faulty()], "avx2", MACHINE),
    "exp_avx512": ([kernel("exp", F32, 16, 1)], "avx512", MACHINE),
    "tanh_neon": ([kernel("tanh", F32, 4, 1)], "neon", ARM),
}


@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    programs, isa, machine = CASES[name]
    text = emit_module(programs, target_for(isa, machine))
    path = FOLDER / f"{name}.ll"
    if os.environ.get("SARDONYX_UPDATE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
