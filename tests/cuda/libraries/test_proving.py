"""Libraries are tried before runs rely on them: what is not written, or different, is found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import sardonyx
from examples import tiles
from sardonyx.api.inspection import inspect
from sardonyx.api.providers import cuda_is_missing
from sardonyx.cuda.driver.device import device
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.libraries.measuring import Loan
from sardonyx.cuda.libraries.proving import Trial, _lines, proven
from sardonyx.cuda.memory.rectangles import copy_rectangles
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_SHAPES = {
    "dense": ((3, 5, 1000), (5000, 1000, 1)),
    "the longest axis outside": ((1000, 3, 5), (15, 5, 1)),
    "channels last": ((2, 7, 40, 300), (84000, 1, 2100, 7)),
    "with gaps": ((4, 6, 8), (200, 32, 2)),
    "one element": ((1, 1), (1, 1)),
}


@pytest.mark.parametrize("name", _SHAPES)
def test_lines_lie_in_the_array_and_reach_both_ends(name: str) -> None:
    shape, strides = _SHAPES[name]
    places = np.zeros(shape, np.int64)
    for axis, step in enumerate(strides):
        places += (
            np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))])
            * step
        )
    lines = _lines(shape, strides)
    seen = {start + k * step for start, step, count in lines for k in range(count)}
    assert seen <= set(places.ravel().tolist())
    assert {0, int(places.max())} <= seen
    assert len(seen) >= min(places.size, 80)


@pytest.mark.parametrize("kind", ["float", "double", "float16", "bfloat16"])
@pytest.mark.parametrize(("rows", "is_whole"), [(40, True), (39, False), (20, False), (0, False)])
def test_what_is_not_written_is_found(gpu: Any, kind: str, rows: int, is_whole: bool) -> None:
    where = device(0)
    where.enter()
    stream = where.new_stream().handle
    shape, strides = (40, 30), (32, 1)  # with gaps, which nothing writes
    count = 39 * 32 + 30
    with Loan(where.capturing) as loan:
        operands = {"x": (count, kind), "y": (count, kind)}
        trial = Trial(where, loan, stream, operands, "y", shape, strides)
        size = {"float": 4, "double": 8}.get(kind, 2)

        def work() -> None:
            _copied(trial.places["y"], trial.places["x"], (rows, 30), size, stream)

        found = trial.result_of(work)
        assert (found is not None) == is_whole
        if found is not None:
            assert 0.9 < np.abs(found).max() <= 1
            assert len(np.unique(found)) > 100
        call("cuStreamSynchronize", stream)


def _copied(target: int, source: int, shape: Sequence[int], size: int, stream: int) -> None:
    steps = (32 * size, size)
    copy_rectangles(target, steps, source, steps, shape, size, stream)


_ONE, _OTHER = np.array([1.0, -2.0, 3.0]), np.array([1.0, 2.0, 3.0])
_NEAR = _ONE + 0.01


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({0: _ONE, 1: _NEAR, 2: _OTHER}, [0, 1]),
        ({0: _OTHER, 1: _ONE, 4: _NEAR}, [1, 4]),
        ({0: None, 1: _ONE}, [1]),
        ({0: None, 1: None}, []),
        ({0: _OTHER, 1: _ONE}, [0]),
        ({0: _ONE, 1: _ONE * np.inf}, [0]),
        ({0: _ONE * 0, 1: _ONE * 0}, [0, 1]),
        ({}, []),
    ],
)
def test_most_are_right(found: Any, expected: list[int]) -> None:
    assert list(proven(found)) == expected


@pytest.mark.skipif(bool(cuda_is_missing()), reason="there is no GPU with a driver")
@pytest.mark.parametrize("search", ["EXHAUSTIVE", "HEURISTIC", "DEFAULT"])
@pytest.mark.parametrize("size", [256, 1024])
def test_few_channels_of_large_images(search: str, size: int) -> None:
    """cuDNN 9.19 has a plan for these that does nothing, and takes no time for it."""
    model = model_of(*tiles.model(), opset=18).SerializeToString()
    here = sardonyx.InferenceSession(model)
    given = {"cudnn_conv_algo_search": search}
    there = sardonyx.InferenceSession(model, providers=[("CUDAExecutionProvider", given)])
    dice = np.random.default_rng(size)
    for _ in range(4):
        x = dice.random((1, 3, size, size), np.float32)
        (found,), (expected,) = there.run(None, {"x": x}), here.run(None, {"x": x})
        assert_near(found, expected, "tf32: products")
        deadline = time.monotonic() + 60
        while inspect(there).libraries.pending and time.monotonic() < deadline:
            time.sleep(0.01)
