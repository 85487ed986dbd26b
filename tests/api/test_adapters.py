"""LoRA adapters: files of onnxruntime's format, and runs with their tensors."""

from __future__ import annotations

import base64
import importlib.util
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidArgument, NoSuchFile, NotImplemented
from sardonyx.capi import _pybind_state as state
from tests.support.session import model_of

#: What onnxruntime 1.31.1 wrote of `PARAMETERS`.
WRITTEN = zlib.decompress(base64.b85decode(
    'c-rG(U|<OG4+;TN3|IdB|IY}dnSq!ch*^M`6^Ippf@gqq4G`Nv#Towp|E~e0M1YtRD#irFj8F_>!vKh10>majJvu'
    ';I0BQ#dR32F^G8-hHm!FpkViy4QS^#MoAm)O~foPzEU=VIU1JvCxzzxKS@j3Z<>G64qxv30$pk`?x`BMT(FU$?hN'
    'bW~wCjl`J(B~`+96(wCh#43hpyn|mnFj$4_7G_YAZ`HS1rAI&>?j9f09cPAcm'
))  # fmt: skip
PARAMETERS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array([1, 2, 3], np.int64),
    "a_long_name": np.ones((1, 5), np.float16),
    "none": np.zeros((0, 2), np.int8),
    "t": np.array([True, False]),
}


def values(arrays: dict[str, Any]) -> dict[str, sardonyx.OrtValue]:
    return {n: sardonyx.OrtValue.ortvalue_from_numpy(np.asarray(a)) for n, a in arrays.items()}


def file_of(folder: Path, **arrays: Any) -> Path:
    """A file with these parameters."""
    made = sardonyx.AdapterFormat()
    made.set_parameters(values(arrays))
    made.export_adapter(folder / "made.onnx_adapter")
    return folder / "made.onnx_adapter"


def adapter_of(folder: Path, **arrays: Any) -> sardonyx.LoraAdapter:
    """The same, loaded."""
    adapter = sardonyx.LoraAdapter()
    adapter.Load(str(file_of(folder, **arrays)))
    return adapter


def check_contents(read: Any, wanted: dict[str, Any] = PARAMETERS) -> None:
    assert (read.get_adapter_version(), read.get_model_version()) == (3, 7)
    assert read.get_format_version() == 1
    found = read.get_parameters()
    assert sorted(found) == sorted(wanted)
    for name, want in wanted.items():
        np.testing.assert_array_equal(found[name].numpy(), want, strict=True)


def test_reads_what_onnxruntime_wrote(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx_adapter"
    path.write_bytes(WRITTEN)
    check_contents(sardonyx.AdapterFormat.read_adapter(path))


def written(folder: Path, wanted: dict[str, Any] = PARAMETERS) -> Path:
    made = sardonyx.AdapterFormat()
    made.set_adapter_version(3)
    made.set_model_version(7)
    made.set_parameters(values(wanted))
    made.export_adapter(folder / "o.onnx_adapter")
    return folder / "o.onnx_adapter"


def test_reads_what_it_wrote(tmp_path: Path) -> None:
    check_contents(sardonyx.AdapterFormat.read_adapter(written(tmp_path)))


def test_onnxruntime_reads_what_it_wrote(tmp_path: Path) -> None:
    if importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed")
    import onnxruntime

    known = {n: a for n, a in PARAMETERS.items() if a.dtype != bool}  # it writes, but reads none
    path = str(written(tmp_path, known))
    check_contents(onnxruntime.AdapterFormat.read_adapter(path), known)


@pytest.mark.parametrize(
    "array", [np.float32(2.5), np.zeros((2, 0, 3), np.uint16), np.ones(1, np.complex64)],
)  # fmt: skip
def test_shapes_and_types(array: Any, tmp_path: Path) -> None:
    (found,) = sardonyx.AdapterFormat.read_adapter(file_of(tmp_path, x=array)).parameters.values()
    np.testing.assert_array_equal(found.numpy(), array)
    assert found.shape() == list(np.shape(array))


def test_every_cut_and_every_changed_byte_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx_adapter"
    refused = 0
    cases = [WRITTEN[:k] for k in range(len(WRITTEN))]
    for k in range(len(WRITTEN)):
        cases += [WRITTEN[:k] + bytes([b]) + WRITTEN[k + 1 :] for b in (0x7F, 0xFF)]
    for data in cases:
        path.write_bytes(data)
        try:
            for value in sardonyx.AdapterFormat.read_adapter(path).parameters.values():
                value.numpy().sum()
        except (InvalidArgument, NotImplemented):
            refused += 1
    assert refused > len(WRITTEN)


def replaced(old: bytes, new: bytes) -> bytes:
    assert WRITTEN.count(old) == 1
    return WRITTEN.replace(old, new)


def shape_of_w(rows: int, columns: int) -> bytes:
    """As it lies in the file: before the name."""
    return struct.pack("<2qI", rows, columns, 1) + b"w"


DAMAGES: dict[str, tuple[bytes, type[Exception], str]] = {
    "empty": (b"", InvalidArgument, "does not begin like one"),
    "text": (b"no adapter at all", InvalidArgument, "does not begin like one"),
    "version": (
        replaced(struct.pack("<3i", 1, 3, 7), struct.pack("<3i", 2, 3, 7)), NotImplemented,
        "another version",
    ),
    "name": (replaced(b"a_long_name", b"a_\xff\xff\xff_name"), InvalidArgument, "damaged"),
    "shape": (
        replaced(shape_of_w(2, 3), shape_of_w(2, 4)), InvalidArgument, "of shape",
    ),
    "negative": (
        replaced(shape_of_w(2, 3), shape_of_w(-2, -3)), InvalidArgument, "of shape",
    ),
    "truth": (
        replaced(b"\x02\0\0\0\x01\0\0\0\x01\0\0\0", b"\x02\0\0\0\x07\0\0\0\x01\0\0\0"),
        InvalidArgument, "neither 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    data, error, text = DAMAGES[name]
    path = tmp_path / "a.onnx_adapter"
    path.write_bytes(data)
    with pytest.raises(error, match=text):
        sardonyx.LoraAdapter().Load(path)


# -- runs ----------------------------------------------------------------------------------------

TEXT = (
    "g (float[n, 2] x, float[2, 3] w, float[2, 3] v) => (float[n, 3] y)"
    " { h = MatMul(x, w) k = MatMul(x, v) y = Add(h, k) }"
)
X, W, V = (np.arange(n, dtype=np.float32) for n in (2, 6, 6))
X, W, V = X.reshape(1, 2) + 1, W.reshape(2, 3), 3 - V.reshape(2, 3)


@pytest.fixture(scope="module")
def session() -> sardonyx.InferenceSession:
    zeros = np.zeros((2, 3), np.float32)
    return sardonyx.InferenceSession(model_of(TEXT, {"w": zeros, "v": zeros}))


def with_adapters(*adapters: sardonyx.LoraAdapter) -> sardonyx.RunOptions:
    options = sardonyx.RunOptions()
    for adapter in adapters:
        options.add_active_adapter(adapter)
    return options


def test_runs(session: sardonyx.InferenceSession, tmp_path: Path) -> None:
    w, v, w_again = (adapter_of(tmp_path, **p) for p in ({"w": W}, {"v": V}, {"w": V}))
    cases = [
        ((), 0 * X @ W), ((w,), X @ W), ((v,), X @ V), ((w, v), X @ W + X @ V), ((w, w), X @ W),
        ((w, w_again), X @ V), ((w_again, w), X @ W),
    ]  # fmt: skip
    for adapters, want in (*cases, *reversed(cases)):
        options = with_adapters(*adapters)
        (got,) = session.run(None, {"x": X}, options)
        np.testing.assert_array_equal(got, want)
        (value,) = session.run_with_ort_values(None, values({"x": X}), options)
        np.testing.assert_array_equal(value.numpy(), want)
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("y")
        session.run_with_iobinding(binding, options)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], want)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], 0 * X @ W)
    # As in onnxruntime, the adapter comes before the feed.
    (got,) = session.run(None, {"x": X, "w": W + 1}, with_adapters(w))
    np.testing.assert_array_equal(got, X @ W)


def test_refused_runs(session: sardonyx.InferenceSession, tmp_path: Path) -> None:
    cases = {
        "no input 'strange'": adapter_of(tmp_path, strange=W),
        "Nothing was loaded": sardonyx.LoraAdapter(),
        "w": adapter_of(tmp_path, w=W.astype(np.float64)),
        "2": adapter_of(tmp_path, w=W[:1]),
    }
    for text, adapter in cases.items():
        with pytest.raises(InvalidArgument, match=text):
            session.run(None, {"x": X}, with_adapters(adapter))
    (got,) = session.run(None, {"x": X})
    np.testing.assert_array_equal(got, 0 * X @ W)


def test_refused_arguments(tmp_path: Path) -> None:
    adapter = sardonyx.AdapterFormat()
    calls = [
        lambda: sardonyx.RunOptions().add_active_adapter(3),  # type: ignore[arg-type]
        lambda: adapter.set_parameters([1]),  # type: ignore[arg-type]
        lambda: adapter.set_parameters({"x": X}),  # type: ignore[dict-item]
        lambda: adapter.set_parameters({3: values({"x": X})["x"]}),  # type: ignore[dict-item]
        lambda: adapter.set_model_version(2**31),
        lambda: adapter.set_adapter_version("1"),  # type: ignore[arg-type]
        lambda: sardonyx.LoraAdapter().Load(3),  # type: ignore[arg-type]
        lambda: sardonyx.LoraAdapter().Load(tmp_path),
        lambda: file_of(tmp_path, x=np.array(["text"], object)),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument):
            call()
    with pytest.raises(NoSuchFile):
        sardonyx.LoraAdapter().Load(tmp_path / "nosuch")
    assert list(tmp_path.iterdir()) == []


def test_the_compiled_modules_class() -> None:
    adapter = state.AdapterFormat()
    adapter.adapter_version, adapter.model_version = 4, 5
    adapter.parameters = values({"w": W})
    assert (adapter.get_adapter_version(), adapter.get_model_version()) == (4, 5)
    assert list(adapter.get_parameters()) == ["w"] and adapter.format_version == 1
