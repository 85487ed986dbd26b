"""onnxruntime.tools' names, on a ModelProto."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.base.errors import InvalidArgument
from sardonyx.loader import writer
from sardonyx.tools import models
from sardonyx.tools import onnx_model_utils as utils
from tests.support.layers import Net, bert


def _sizes(value: Any) -> list[Any]:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def test_initializers_are_no_inputs() -> None:
    model, _ = bert()
    first = model.graph.initializer[0]
    model.graph.input.append(
        onnx.helper.make_tensor_value_info(first.name, first.data_type, first.dims)
    )
    model.ir_version = 3
    assert not utils.remove_initializer_from_input(model)
    model.ir_version = 8
    assert utils.remove_initializer_from_input(model)
    assert [i.name for i in model.graph.input] == ["ids", "types", "mask"]
    assert not utils.remove_initializer_from_input(model)


def test_fixed_shapes() -> None:
    model, feeds = bert()
    utils.make_dim_param_fixed(model.graph, "N", 2)
    assert [_sizes(i) for i in model.graph.input] == [[2, "S"]] * 3
    utils.make_input_shape_fixed(model.graph, "mask", [2, 6])
    assert [_sizes(i) for i in model.graph.input] == [[2, 6]] * 3
    utils.fix_output_shapes(model)
    assert _sizes(model.graph.output[0]) == [2, 6, 32]
    got = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
    assert got[0].shape == (2, 6, 32)


ERRORS: list[tuple[str, list[int], str]] = [
    ("mask", [2], "Wrong number of axes"),
    ("masks", [2, 6], "Did you mean 'mask'"),
    ("mask", [0, 6], "1 or more"),
]


@pytest.mark.parametrize(("name", "shape", "text"), ERRORS, ids=[e[2] for e in ERRORS])
def test_errors(name: str, shape: list[int], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        utils.make_input_shape_fixed(bert()[0].graph, name, shape)


def test_a_size_that_is_fixed() -> None:
    net = Net()
    net.input("x", ["N", 3], net.weight(2, 3))
    with pytest.raises(InvalidArgument, match="A size is fixed. Expected 3, got 4"):
        utils.make_input_shape_fixed(net.model().graph, "x", [2, 4])


def test_newer_operators(tmp_path: Path) -> None:
    onnx.save(bert(13)[0], tmp_path / "old.onnx")
    model = utils.update_onnx_opset(tmp_path / "old.onnx", 17)
    assert model.opset_import[0].version == 17
    assert os.listdir(tmp_path) == ["old.onnx"]


def test_levels(tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", ["N", 3], net.weight(2, 3))
    onnx.save(
        net.model(net.op("Identity", net.op("Exp", net.op("Mul", x, 1.0)))), tmp_path / "m.onnx"
    )
    left = {}
    for level in ("disable", "basic", "all"):
        utils.optimize_model(
            tmp_path / "m.onnx", tmp_path / "out.onnx", utils.get_optimization_level(level)
        )
        left[level] = [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node]
    assert left["disable"] == ["Mul", "Exp", "Identity"]
    assert "Mul" not in left["basic"]
    assert left["all"] == left["basic"]
    with pytest.raises(InvalidArgument, match="Did you mean 'basic'"):
        utils.get_optimization_level("basics")


def test_large_models_have_external_data_by_themselves(tmp_path: Path, monkeypatch: Any) -> None:
    model, feeds = bert()
    monkeypatch.setattr(writer, "_PROTOBUF_LIMIT_BYTES", 20_000)
    monkeypatch.setattr(writer, "_MARGIN_BYTES", 0)
    models.remove_initializers_from_inputs(model, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").stat().st_size > 20_000
    got = sardonyx.InferenceSession(tmp_path / "out.onnx").run(None, feeds)
    want = sardonyx.InferenceSession(model.SerializeToString()).run(None, feeds)
    np.testing.assert_array_equal(got[0], want[0])
