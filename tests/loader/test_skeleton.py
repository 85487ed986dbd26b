"""Skeletons: equal for models that differ in weights alone, and for no others."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from sardonyx.loader import skeleton
from sardonyx.loader.onnx_format import TENSOR
from sardonyx.loader.skeleton import skeleton_of
from sardonyx.loader.source import FileSource, Source
from sardonyx.loader.wire import decode
from tests.support.session import model_of

_TEXT = "g (float[n, 8] x) => (float[n, 24] y) { z = MatMul(x, w) y = Add(z, b) }"


def _model(seed=0, text=_TEXT, **weights):
    random = np.random.default_rng(seed)
    found = {"w": random.standard_normal((8, 24)).astype(np.float32)}
    found["b"] = random.standard_normal(24).astype(np.float32)
    return model_of(text, found | weights)


def _digest(model):
    found = skeleton_of(Source(model.SerializeToString()))
    assert found is not None
    return found.digest


def _renamed():
    model = _model()
    model.graph.initializer[1].name = model.graph.node[1].input[1] = "c"
    return model


def _exchanged():
    model = _model()
    first, second = model.graph.initializer
    model.graph.ClearField("initializer")
    model.graph.initializer.extend([second, first])
    return model


def _typed():
    """Weights as numbers: their bytes count."""
    model = _model()
    value = numpy_helper.to_array(model.graph.initializer[1])
    made = helper.make_tensor("b", onnx.TensorProto.FLOAT, [24], value)
    model.graph.initializer[1].CopyFrom(made)
    return model


def _in_node(seed):
    model = _model()
    value = numpy_helper.from_array(np.random.default_rng(seed).standard_normal(24), "v")
    model.graph.node.insert(0, helper.make_node("Constant", [], ["v"], value=value))
    return model


def _metadata():
    model = _model()
    model.metadata_props.add(key="a", value="b")
    return model


OTHERS = {
    "node": lambda: _model(text=_TEXT.replace("Add", "Sub")),
    "name": _renamed,
    "order of weights": _exchanged,
    "shape": lambda: _model(b=np.zeros((1, 24), np.float32)),
    "type": lambda: _model(b=np.zeros(12, np.float64)),
    "one weight more": lambda: _model(c=np.zeros(24, np.float32)),
    "short weight": lambda: _model(c=np.float32(1)),
    "another short weight": lambda: _model(c=np.float32(2)),
    "numbers instead of bytes": _typed,
    "tensor of a node": lambda: _in_node(1),
    "another tensor of a node": lambda: _in_node(2),
    "metadata": _metadata,
}


def test_contents_of_weights_do_not_count():
    assert _digest(_model(1)) == _digest(_model(2))


def test_all_else_counts():
    found = [_digest(_model()), *(_digest(make()) for make in OTHERS.values())]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("size", [20, 33, 64, 1 << 17])
def test_windows_do_not_count(size, tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(_in_node(1).SerializeToString())
    whole = skeleton_of(Source(path.read_bytes()))
    monkeypatch.setattr(skeleton, "WINDOW_BYTES", size)
    assert skeleton_of(FileSource(str(path))) == whole


def test_messages_of_initializers_are_found(tmp_path):
    model = _model()
    data = model.SerializeToString()
    places = skeleton_of(Source(data)).initializers
    assert [data[at : at + size] for at, size in places] == [
        tensor.SerializeToString() for tensor in model.graph.initializer
    ]
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    for source in (Source(data), FileSource(str(path))):
        found = [decode(TENSOR, source, place) for place in places]
        assert [(t.name, list(t.dims)) for t in found] == [("w", [8, 24]), ("b", [24])]


def test_data_elsewhere_are_noted():
    model = _model()
    tensor = model.graph.initializer[1]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="data")
    assert skeleton_of(Source(model.SerializeToString())).external == [1]


def _field(tag, contents):
    return bytes([tag, len(contents)]) + contents


_RAW = _field(0x4A, bytes(40))
BROKEN = {
    "no protobuf": b"\xff" * 40,
    "cut short": _model().SerializeToString()[:-10],
    "a length beyond the end": bytes([0x3A, 100, 0]),
    "a group": bytes([0x3B, 0x3C]),
    "field 0": bytes([0x02, 0]),
    "a number without an end": bytes([0x08]) + b"\xff" * 30,
    "raw bytes twice": _field(0x3A, _field(0x2A, _RAW + _RAW)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_written_as_usual_has_none(name):
    assert skeleton_of(Source(BROKEN[name])) is None


def test_what_takes_long_has_none(monkeypatch):
    monkeypatch.setattr(skeleton, "_LONGEST_BYTES", 300)
    assert skeleton_of(Source(_model().SerializeToString())) is not None
    assert skeleton_of(Source(_in_node(1).SerializeToString())) is None
