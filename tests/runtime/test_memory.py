"""What stays in memory of sessions that are gone."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import onnx

from sardonyx.base import sizes
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from tests.engine.networks import Net

#: Models that are measured, and the number behind theirs.
_COUNT, _LAST = 20, 29


def small_model(k: int) -> onnx.ModelProto:
    """Model number `k`: no other has its dimensions' names or sizes; indices depend on data."""
    n, width = Net(k), 8 * (k + 2)
    x = n.add("Gather", n.weight(9 + k, width), "ids")
    x = n.add("Reshape", x, n.constant(np.array([0, -1, 4, width // 4])))
    x = n.add("Softmax", n.add("Transpose", x, perm=[0, 2, 1, 3]), axis=-1)
    x = n.add("Reshape", x, n.constant(np.array([-1, width])))
    x = n.add("Relu", n.add("MatMul", x, n.weight(width, 5 + k)))
    x = n.add("Slice", x, n.constant(np.array([0])), n.constant(np.array([-1 - k])))
    image = n.add("MaxPool", "image", kernel_shape=[3, 3], strides=[2, 2])
    inputs = {"ids": ("i", [f"N{k}", f"S{k}"]), "image": ("f", [1, 3, f"H{k}", f"W{k}"])}
    return n.model(inputs, [x, image])


def make_and_drop(k: int) -> None:
    engine = create_engine(small_model(k).SerializeToString(), EngineOptions(use_cache=False))
    found = engine.run([np.zeros((2, 9), np.int64), np.zeros((1, 3, 20, 24), np.float32)])
    assert found[0].shape[1] == 5 + k


def traced_bytes() -> int:
    for _ in range(3):  # what a finaliser lets go of is found by the next collection
        gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _symbols() -> set[str]:
    return {a.name for a in sizes._ATOMS.values() if a.kind == "symbol"}


def test_nothing_stays_of_a_model() -> None:
    others = _symbols()  # of other tests
    tracemalloc.start()
    try:
        # Micro-kernels are kept for all models: the last two have those of wider results.
        for k in (*range(8), 15, _LAST):
            make_and_drop(k)
        before = traced_bytes()
        for k in range(_LAST + 1 - _COUNT, _LAST + 1):
            make_and_drop(k)
        after = traced_bytes()
    finally:
        tracemalloc.stop()
    names = _symbols() - others
    assert not names & {f"{letter}{k}" for letter in "NSHW" for k in range(_LAST + 1)}
    assert (after - before) / _COUNT < 4000
