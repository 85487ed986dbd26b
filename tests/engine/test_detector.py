"""The benchmark's detector at many image sizes in one session, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from benchmarks.detector import feeds_of, model
from sardonyx.llvm.compile import COUNTS
from tests.support.tolerances import assert_near

_SIZES = [(64, 64), (160, 96), (32, 256), (320, 320), (64, 64), (16, 16)]


@pytest.mark.parametrize("threads", [1, 2])
def test_images_of_many_sizes(threads: int) -> None:
    text = model().SerializeToString()
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    session = sardonyx.InferenceSession(text, options)
    onnxruntime = pytest.importorskip("onnxruntime")
    peer = onnxruntime.InferenceSession(text)
    compiled = COUNTS["modules"]
    rng = np.random.default_rng(4)
    kept = set()
    for height, width in _SIZES:
        for least in (0.6, 0.9, 0.99, 1.0):
            feeds = feeds_of(height, width, least, rng)
            boxes, scores, kind = session.run(None, feeds)
            other = peer.run(None, feeds)
            assert_near(scores, other[1], "float: layers without cancellation")
            assert_near(boxes, other[0], "float: which result it is")
            np.testing.assert_array_equal(kind, other[2])
            kept.add(len(scores))
    assert {0, 100} <= kept
    assert COUNTS["modules"] == compiled
