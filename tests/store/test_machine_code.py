import ctypes

import numpy as np
import pytest

from sardonyx.base import knobs
from sardonyx.base.errors import EngineError
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.types import I64, PTR
from sardonyx.link.executable_memory import load_blob
from sardonyx.llvm import compile as llvm
from sardonyx.store.cache import Cache
from sardonyx.store.machine_code import Units
from sardonyx.targets.target import host_target
from tests.support.session import model_of
from tests.support.tolerances import assert_near

TARGET = host_target()


def doubled():
    b = Builder("doubled", [("x", I64)], result=I64)
    b.return_(b.parameter("x") * 2)
    return b.program


def kernel(name, added):
    """Writes 2 * block + added for each block."""
    b = Builder(name, [("y", PTR)], kind="kernel")
    y = b.parameter("y")
    with b.parallel() as block:
        b.store(b.call("doubled", [block], I64) + added, y, block)
    return b.program


def filled(units, name, count=5):
    code = load_blob(units.blob([name]))
    y = np.zeros(count, np.int64)
    slots = (ctypes.c_int64 * 1)(y.ctypes.data)
    signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 2, ctypes.c_void_p)
    signature(code.address(name))(ctypes.addressof(slots), 0, count, None)
    return y.tolist()


def test_functions_are_compiled_apart_and_linked():
    with Units(TARGET, None) as units:
        units.take([kernel("first", 1), doubled()])
        units.take([kernel("second", 7), doubled()])
        assert filled(units, "first") == [1, 3, 5, 7, 9]
        assert filled(units, "second") == [7, 9, 11, 13, 15]
        assert units.blob(["first", "second"]).symbols.keys() == {"first", "second", "doubled"}
        assert units.compiled == 3
        assert units.blob([]).image


def test_another_model_finds_equal_functions_under_other_names(tmp_path):
    cache = Cache(tmp_path, 10**9)
    with Units(TARGET, cache) as units:
        units.take([kernel("first", 1), doubled()])
        units.blob(["first"])
    before = llvm.COUNTS["modules"]
    with Units(TARGET, cache) as units:
        units.take([kernel("other", 1), doubled()])
        assert filled(units, "other") == [1, 3, 5, 7, 9]
        assert (units.found, units.compiled) == (2, 0)
    assert llvm.COUNTS["modules"] == before


def test_what_is_called_must_be_there():
    with Units(TARGET, None) as units:
        units.take([kernel("first", 1)])
        with pytest.raises(EngineError, match="In program first"):
            units.blob(["first"])


MODEL = """
g (float[N, 16] x) => (float[N, 4] y) { z = MatMul (x, w) y = Softmax (z) }
"""


def test_a_session_leaves_llvm_to_other_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path))
    weights = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
    source = model_of(MODEL, {"w": weights}, 18).SerializeToString()
    before = llvm.COUNTS["modules"]
    with knobs.override("SARDONYX_COMPILE_PROCESSES", 2):
        engine = create_engine(source, EngineOptions())
    assert llvm.COUNTS["modules"] == before
    x = np.ones((3, 16), np.float32)
    (y,) = engine.run([x])
    z = np.exp(x @ weights)
    assert_near(y, z / z.sum(1, keepdims=True), "float: functions")
