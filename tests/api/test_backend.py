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
    with pytest.warns(UserWarning, match="intra_op_num_threads"):
        prepared = backend.prepare(models.add(), intra_op_threads=1)
    with pytest.warns(UserWarning, match="log_severity_level"):
        assert np.array_equal(prepared.run([A, A], log_severity=1)[0], A + A)
    for name in ("enable_profiling", "optimized_model_filepath", "profile_file_prefix"):
        with pytest.raises(errors.InvalidArgument, match=name):
            backend.prepare(models.add(), **{name: "x"})
    with pytest.raises(errors.InvalidArgument, match="terminate"):
        prepared.run([A, A], terminate=True)
    assert np.array_equal(prepared.run([A, A], logid="mine")[0], A + A)
    assert backend.backend.OnnxRuntimeBackend.is_opset_supported(None) == (True, "")
    with pytest.raises(errors.InvalidArgument, match="Too many"):
        backend.prepare(models.add()).run([A, A, A])
