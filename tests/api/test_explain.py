"""`explain` says what runs, why elements are copied, and which other plans there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import sardonyx as ort
from tests.api import models
from tests.engine import networks


def lines(session: Any, **options: Any) -> list[str]:
    return [line.strip() for line in session.explain(**options).splitlines()]


def test_kernels_and_their_nodes() -> None:
    session = ort.InferenceSession(networks.perceptron().SerializeToString())
    said = lines(session)
    assert said[0].startswith("3 kernels for 6 nodes, ")
    assert "copies of layout: none" in said
    assert [line.split()[-2:] for line in said[-3:]] == [
        ["Gemm_0", "Relu_1"], ["Gemm_2", "Relu_3"], ["Gemm_4", "Relu_5"],
    ]  # fmt: skip
    assert "%" not in said[-1] and not any(line.startswith("kernels, ") for line in said)
    assert any(line.startswith("memory: ") and "0 frames" in line for line in said)
    session.run(None, {"x": np.ones((4, 40), np.float32)})
    said = lines(session)
    assert all("%" in line for line in said[-3:])
    assert said[-4].startswith("kernels, with shares of a run's time that are estimated, not meas")
    assert any("1 frame" in line for line in said)


def test_verbose_has_sizes_and_buffers() -> None:
    session = ort.InferenceSession(networks.perceptron().SerializeToString())
    assert any("N" in line for line in lines(session, verbose=True) if "bytes, used" in line)
    session.run(None, {"x": np.ones((4, 40), np.float32)})
    said = lines(session, verbose=True)
    assert "b0: input 0, 640 bytes, used by 0 to 0" in said
    assert any(line.startswith("phase ") for line in said)


def test_compiled_or_from_the_cache(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path))
    first, second = (lines(ort.InferenceSession(models.add())) for _ in range(2))
    assert first[1].startswith("compiled in ")
    assert second[1].startswith("from the cache in ")


def test_why_elements_are_copied() -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["y"], name="turn", perm=[1, 0])]
    given = {"x": (TensorProto.FLOAT, ["N", 7])}
    model = models.model(nodes, given, {"y": (TensorProto.FLOAT, [7, "N"])})
    said = lines(ort.InferenceSession(model))
    assert "copies of layout: 1" in said
    assert "copy_0 (turn): the output y has this order" in said


def test_other_plans() -> None:
    session = ort.InferenceSession(models.scaled())
    session.run(None, {"x": np.ones((2, 3), np.float32), "c": np.array(3, np.float32)})
    assert "another plan, for feeds of c:" in lines(session)
    several = ort.InferenceSession(models.add())
    a = np.ones((2, 3), np.float32)
    several.run(None, {"a": a[:1], "b": a})
    assert "another plan, for contradicting sizes:" in lines(several)
