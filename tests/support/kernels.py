"""Compiling kernel programs and calling them from tests."""

import ctypes

import ml_dtypes
import numpy as np

from sardonyx.kernel.language.context import FIELDS, SIZE_BYTES
from sardonyx.kernel.language.types import Type
from sardonyx.link.blob import build
from sardonyx.link.executable_memory import load_blob
from sardonyx.llvm.module import emit_module
from sardonyx.targets.machine import read_machine
from sardonyx.targets.target import best_isa, target_for

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
MACHINE = read_machine()
_DTYPES = {"bf16": ml_dtypes.bfloat16, "i1": np.bool_} | {
    f"{letter}{bits}": np.dtype(f"{letter}{bits // 8}")
    for letter in "iuf"
    for bits in (8, 16, 32, 64)
    if bits > 8 or letter != "f"
}


def dtype(type: Type) -> np.dtype:
    return np.dtype(_DTYPES[type.scalar])


def targets():
    """Targets of the instruction sets that this machine runs."""
    names = ["neon"] if MACHINE.arch == "aarch64" else ["avx512", "avx2", "sse"]
    first = names.index(best_isa(MACHINE))
    return [target_for(isa, MACHINE) for isa in names[first:]]


class Kernels:
    """Programs compiled into one module; calls copy nothing."""

    def __init__(self, programs, target, **options):
        self.code = load_blob(build(emit_module(programs, target), target, **options))
        self.fault = np.zeros(5, np.int64)
        self.context = np.zeros(SIZE_BYTES // 8, np.int64)
        self.context[FIELDS["fault"] // 8] = self.fault.ctypes.data
        self.context[FIELDS["command"] // 8] = 7
        self.cancel = np.zeros(1, np.int64)
        self.context[FIELDS["cancel"] // 8] = self.cancel.ctypes.data

    def function(self, name, result, *parameters):
        return ctypes.CFUNCTYPE(result, *parameters)(self.code.address(name))

    def run(self, name, *arguments, begin=0, end=1):
        """Arguments are arrays, integers, or NumPy scalars."""
        slots = np.zeros(max(1, len(arguments)), np.int64)
        for i, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                slots[i] = argument.ctypes.data
            elif isinstance(argument, int):
                slots[i] = argument
            else:
                raw = argument.tobytes()
                slots[i : i + 1].view(np.uint8)[: len(raw)] = np.frombuffer(raw, np.uint8)
        call = KERNEL(self.code.address(name))
        call(slots.ctypes.data, begin, end, self.context.ctypes.data)
