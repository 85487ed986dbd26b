"""What options give in place of parts of a model: sizes by denotation, weights from memory."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.base import errors
from tests.support.session import model_of

# -- sizes by denotation ------------------------------------------------------------------------


def denoted() -> bytes:
    model = model_of(
        "agraph (float[n, 3, m, p] x, float[n] z) => (float[n, 3, m, p] y, float[n] w)"
        " { y = Relu(x) w = Relu(z) }"
    )
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[3].ClearField("dim_param")
    for axis, word in ((0, "DATA_BATCH"), (1, "DATA_CHANNEL"), (3, "DATA_FEATURE")):
        dims[axis].denotation = word
    return model.SerializeToString()


def sized(*pairs: tuple[str, int], **named: int) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    for word, size in pairs:
        options.add_free_dimension_override_by_denotation(word, size)
    for name, size in named.items():
        options.add_free_dimension_override_by_name(name, size)
    return sardonyx.InferenceSession(denoted(), options)


#: Overrides, and the shape of the first input then: onnxruntime's.
SHAPES: list[tuple[list[tuple[str, int]], dict[str, int], list[Any]]] = [
    ([("DATA_BATCH", 2)], {}, [2, 3, "m", None]),
    ([("DATA_FEATURE", 7)], {}, ["n", 3, "m", 7]),
    ([("DATA_CHANNEL", 3)], {}, ["n", 3, "m", None]),
    ([("data_batch", 4)], {}, [4, 3, "m", None]),
    ([("DATA_BATCH", 2)], {"n": 2, "m": 5}, [2, 3, 5, None]),
    ([("DATA_BATCH", 2), ("DATA_BATCH", 3)], {}, [2, 3, "m", None]),
    ([("OTHER", 2)], {}, ["n", 3, "m", None]),
    ([], {}, ["n", 3, "m", None]),
]


@pytest.mark.parametrize(("pairs", "named", "shape"), SHAPES)
def test_sizes_by_denotation(pairs: Any, named: dict[str, int], shape: list[Any]) -> None:
    for _ in range(2):  # compiled, then from the cache
        session = sized(*pairs, **named)
        assert session.get_inputs()[0].shape == shape
        numbers = {"n": 2, "m": 5, None: 7}
        x = -np.ones([d if isinstance(d, int) else numbers[d] for d in shape], np.float32)
        y, w = session.run(None, {"x": x, "z": np.full(x.shape[0], 2, np.float32)})
        assert y.shape == x.shape
        assert not y.any()
        assert w.tolist() == [2] * x.shape[0]


def test_they_match_onnxruntime() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    for pairs, named, shape in SHAPES:
        options = onnxruntime.SessionOptions()
        for word, size in pairs:
            options.add_free_dimension_override_by_denotation(word, size)
        for name, size in named.items():
            options.add_free_dimension_override_by_name(name, size)
        assert onnxruntime.InferenceSession(denoted(), options).get_inputs()[0].shape == shape


def test_a_size_by_denotation_is_held_to() -> None:
    session = sized(("DATA_BATCH", 2))
    with pytest.raises(errors.InvalidArgument, match=r"Axis 0.*Expected 2, got 4"):
        session.run(None, {"x": np.ones((4, 3, 1, 1), np.float32), "z": np.ones(4, np.float32)})


CONFLICTS: list[tuple[list[tuple[str, int]], dict[str, int], str]] = [
    ([("DATA_CHANNEL", 4)], {}, r"input x.*axis 1, DATA_CHANNEL.*Expected 3, got 4"),
    ([("DATA_BATCH", 2)], {"n": 3}, r"input x.*The name n gives axis 0.*Expected 3, got 2"),
]


@pytest.mark.parametrize(("pairs", "named", "text"), CONFLICTS)
def test_conflicts_are_reported(pairs: Any, named: dict[str, int], text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        sized(*pairs, **named)


def test_what_has_no_effect_is_said(caplog: Any) -> None:
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            sized(("DATA_BATHC", 2))
        assert "'DATA_BATHC'" in caplog.text
        assert "DATA_BATCH" in caplog.text
    with caplog.at_level(logging.WARNING):
        sized(("DATA_BATCH", 2), ("DATA_BATCH", 3))
    assert "has the size 2 already: 3 is ignored" in caplog.text
    options = sardonyx.SessionOptions()
    wrong: Any
    for wrong in (-1, "2", None, 1.5):
        with pytest.raises(errors.InvalidArgument, match="no size"):
            options.add_free_dimension_override_by_denotation("DATA_BATCH", wrong)
    with pytest.raises(errors.InvalidArgument, match="no text"):
        options.add_free_dimension_override_by_denotation(3, 3)  # type: ignore[arg-type]  # the mistake tested


def test_an_optimised_model_keeps_what_axes_stand_for(tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 2)
    options.optimized_model_filepath = str(tmp_path / "o.onnx")
    sardonyx.InferenceSession(denoted(), options)
    dims = onnx.load(tmp_path / "o.onnx").graph.input[0].type.tensor_type.shape.dim
    words = [d.denotation for d in dims]
    assert words == ["DATA_BATCH", "DATA_CHANNEL", "", "DATA_FEATURE"]
    assert [d.dim_value for d in dims][:2] == [2, 3]


# -- weights from memory ------------------------------------------------------------------------

W = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.array([10, 20, 30], np.float32)
DATA = b"skip" + W.tobytes() + B.tobytes()
X = {"x": np.ones((1, 2), np.float32)}
Y = [[13.0, 25.0, 37.0]]


def tensor(name: str, array: Any, **entries: Any) -> TensorProto:
    made = TensorProto()
    made.name, made.data_location = name, TensorProto.EXTERNAL
    made.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
    made.dims.extend(array.shape)
    for key, value in entries.items():
        made.external_data.add(key=key, value=str(value))
    return made


def external(**changed: Any) -> bytes:
    """`x @ w + b`, whose weights lie in files that do not exist."""
    of_w = {"location": "w.bin", "offset": 4, "length": 24, **changed}
    of_b = {"location": "w.bin", "offset": 28, "length": 12}
    model = model_of("agraph (float[n, 2] x) => (float[n, 3] y) { a = MatMul(x, w) y = Add(a, b) }")
    model.graph.initializer.extend([tensor("w", W, **of_w), tensor("b", B, **of_b)])
    return model.SerializeToString()


def with_files(
    names: Any, buffers: Any, lengths: Any, model: Any = None
) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.add_external_initializers_from_files_in_memory(names, buffers, lengths)
    return sardonyx.InferenceSession(model or external(), options)


BUFFERS: dict[str, Any] = {
    "bytes": DATA,
    "bytearray": bytearray(DATA),
    "memoryview": memoryview(DATA),
    "array of bytes": np.frombuffer(DATA, np.uint8),
    "array of floats": np.frombuffer(DATA, np.float32),
    "longer": DATA + b"more",
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_files_in_memory(kind: str) -> None:
    for _ in range(2):
        session = with_files(["w.bin"], [BUFFERS[kind]], [len(DATA)])
        assert session.run(None, X)[0].tolist() == Y


def test_files_in_memory_as_onnxruntime_has_them() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [DATA], [len(DATA)])
    assert onnxruntime.InferenceSession(external(), options).run(None, X)[0].tolist() == Y


@pytest.mark.parametrize(
    ("given", "written"),
    [("./w.bin", "w.bin"), ("w.bin", "./w.bin"), ("a/w.bin", "a\\w.bin"), ("../w.bin", "../w.bin")],
)
def test_ways_to_write_a_name(given: str, written: str) -> None:
    names, sizes = [given, "w.bin"], [len(DATA)] * 2
    if given == "w.bin":
        names, sizes = names[:1], sizes[:1]
    session = with_files(names, [DATA] * len(names), sizes, external(location=written))
    assert session.run(None, X)[0].tolist() == Y


def test_a_buffer_may_change_afterwards() -> None:
    buffer = bytearray(DATA)
    session = with_files(["w.bin"], [buffer], [len(DATA)])
    buffer[:] = bytes(len(DATA))
    # Another plan, which reads the weights again.
    assert session.run(None, {"x": np.ones((4, 2), np.float32)})[0].tolist() == Y * 4
    assert pickle.loads(pickle.dumps(session)).run(None, X)[0].tolist() == Y
    assert with_files(["w.bin"], [buffer], [len(DATA)]).run(None, X)[0].tolist() == [[0, 0, 0]]


def test_files_in_memory_come_before_those_on_disk(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(external())
    (tmp_path / "w.bin").write_bytes(bytes(len(DATA)))
    options = sardonyx.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [DATA], [len(DATA)])
    assert sardonyx.InferenceSession(tmp_path / "m.onnx", options).run(None, X)[0].tolist() == Y
    assert sardonyx.InferenceSession(tmp_path / "m.onnx").run(None, X)[0].tolist() == [[0, 0, 0]]
    others = sardonyx.SessionOptions()
    others.add_external_initializers_from_files_in_memory(["v.bin"], [DATA], [len(DATA)])
    assert sardonyx.InferenceSession(tmp_path / "m.onnx", others).run(None, X)[0].tolist() == [
        [0, 0, 0]
    ]


#: A model's lies about its data, and what is said of them.
LIES: list[tuple[dict[str, Any], str]] = [
    ({"offset": 30}, "ends after the end of w.bin"),
    ({"offset": 2**62}, "ends after the end of w.bin"),
    ({"offset": -4}, "offset of its data is not a number"),
    ({"offset": "0x4"}, "offset of its data is not a number"),
    ({"length": 20}, "does not fit the length"),
    ({"length": 2**63}, "does not fit the length"),
    ({"location": "v.bin"}, "given without a path"),
    ({"location": ""}, "not allowed"),
    ({"location": "../v.bin"}, "not allowed"),
]


@pytest.mark.parametrize(("changed", "text"), LIES)
def test_lies_of_a_model(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.InvalidGraph, match=text):
        with_files(["w.bin"], [DATA], [len(DATA)], external(**changed))


def test_a_file_that_is_too_short() -> None:
    with pytest.raises(errors.InvalidGraph, match=r"tensor b.*Expected 28 \+ 12 bytes, got 39"):
        with_files(["w.bin"], [DATA], [39])


WRONG: list[tuple[Any, Any, Any, str]] = [
    (["w.bin"], [DATA], [len(DATA) + 1], "length does not fit"),
    (["w.bin"], [DATA], [-1], "length does not fit"),
    (["w.bin"], [DATA], ["40"], "length does not fit"),
    (["w.bin"], [DATA], [True], "length does not fit"),
    (["w.bin"], [DATA], [], "a value for each name"),
    (["w.bin"], [], [], "a value for each name"),
    ("w.bin", [DATA], [40], "no lists"),
    (["w.bin"], DATA, [40], "no lists"),
    (["w.bin"], ["text"], [4], "no contents"),
    (["w.bin"], [np.ones((4, 4), np.float32)[:, ::2]], [4], "no contents"),
    (["w.bin", "w.bin"], [DATA, DATA], [40, 40], "comes twice"),
    ([3], [DATA], [40], "no name"),
    ([""], [DATA], [40], "no name"),
]


@pytest.mark.parametrize(("names", "buffers", "lengths", "text"), WRONG)
def test_what_are_no_files(names: Any, buffers: Any, lengths: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        with_files(names, buffers, lengths)


def replaced(names: Any, values: Any, model: Any = None) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.add_external_initializers(names, values)
    return sardonyx.InferenceSession(model or external(), options)


def ort_value(array: Any) -> sardonyx.OrtValue:
    return sardonyx.OrtValue.ortvalue_from_numpy(array)


def test_external_initializers(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(external())
    for model in (external(), tmp_path / "m.onnx"):
        for given in ([ort_value(W), ort_value(B)], [W, np.asarray(B)], [W[:, ::-1][:, ::-1], B]):
            for _ in range(2):
                assert replaced(["w", "b"], given, model).run(None, X)[0].tolist() == Y
    # One from memory, the other from its file.
    (tmp_path / "w.bin").write_bytes(DATA)
    found = replaced(["w"], [W * 2], tmp_path / "m.onnx").run(None, X)[0]
    assert found.tolist() == [[16.0, 30.0, 44.0]]


def test_types_of_few_bits_and_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for kind in (ml_dtypes.bfloat16, ml_dtypes.int4, np.float16, np.int8):
        own = np.array([1, -2, 3], kind)
        text = "agraph (float[n, 3] x) => (float[n, 3] y) { c = Cast<to = 1>(w) y = Add(x, c) }"
        model = model_of(text, opset=21)
        model.graph.initializer.append(tensor("w", own, location="none.bin"))
        options = sardonyx.SessionOptions()
        options.add_external_initializers(["w"], [own])
        session = sardonyx.InferenceSession(model.SerializeToString(), options)
        assert session.run(None, {"x": np.zeros((1, 3), np.float32)})[0].tolist() == [[1, -2, 3]]
        packed = b"\xe1\x03" if kind is ml_dtypes.int4 else own.tobytes()
        in_memory = with_files(["none.bin"], [packed], [len(packed)], model.SerializeToString())
        found = in_memory.run(None, {"x": np.zeros((1, 3), np.float32)})[0]
        assert found.tolist() == [[1, -2, 3]]


MISFITS: list[tuple[Any, Any, type[Exception], str]] = [
    (["w", "b"], [W.T.copy(), B], errors.InvalidArgument, r"initializer w.*float32\[2, 3\]"),
    (["w", "b"], [W.astype(np.float64), B], errors.InvalidArgument, r"initializer w.*float32"),
    (["w", "b", "q"], [W, B, W], errors.InvalidArgument, "no initializer 'q'"),
    (["w"], [W], errors.InvalidGraph, "holds no data"),
    (["w"], [W, B], errors.InvalidArgument, "a value for each name"),
    (["w"], [[1, 2]], errors.InvalidArgument, "no OrtValue"),
    ([1], [W], errors.InvalidArgument, "no text"),
    ("w", [W], errors.InvalidArgument, "no lists"),
]


@pytest.mark.parametrize(("names", "values", "kind", "text"), MISFITS)
def test_initializers_that_do_not_fit(names: Any, values: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        replaced(names, values)


def test_a_bundle_holds_them(tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [DATA], [len(DATA)])
    path = str(tmp_path / "m.sardonyx")
    sardonyx.ModelCompiler(options, external()).compile_to_file(path)
    assert sardonyx.InferenceSession(path).run(None, X)[0].tolist() == Y
    with pytest.raises(errors.InvalidArgument, match="weights from memory"):
        sardonyx.InferenceSession(path, options)


def test_an_optimised_model_holds_them(tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [DATA], [len(DATA)])
    options.optimized_model_filepath = str(tmp_path / "o.onnx")
    sardonyx.InferenceSession(external(), options)
    assert sardonyx.InferenceSession(tmp_path / "o.onnx").run(None, X)[0].tolist() == Y
