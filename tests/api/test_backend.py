"""ONNX's backend interface."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx.backend as backend
from sardonyx.base import errors
from tests.api import models

A = np.ones((2, 3), np.float32)


@pytest.mark.parametrize("inputs", [[A, A], (A, A), {"a": A, "b": A}])
def test_prepare_and_run(inputs: Any) -> None:
    prepared = backend.prepare(models.add(), "CPU", intra_op_num_threads=1)
    assert np.array_equal(prepared.run(inputs)[0], A + A)
    assert np.array_equal(backend.run(models.add(), inputs, "CPU")[1], -A)


def test_devices() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA:0")
    assert not backend.is_compatible(None, "CUDA")
    with pytest.raises(errors.InvalidArgument, match="CUDA"):
        backend.prepare(models.add(), "CUDA")


def test_wrong_options() -> None:
    with pytest.raises(AttributeError, match="intra_op_num_threads"):
        backend.prepare(models.add(), intra_op_threads=1)
    with pytest.raises(errors.InvalidArgument, match="Too many"):
        backend.prepare(models.add()).run([A, A, A])
