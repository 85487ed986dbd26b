"""`SparseTensor` and values that hold one, beside onnxruntime's where it is installed."""

import pickle
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx import OrtDevice, OrtSparseFormat, OrtValue, SparseTensor
from sardonyx.base import dtypes
from sardonyx.base.errors import EPFail, InvalidArgument, InvalidSparseTensor

CPU = OrtDevice.make("cpu", 0)
VALUES = np.float32([1, 2, 3])
FLAT = np.array([1, 5, 8])
PAIRS = np.array([[0, 1], [1, 2], [2, 2]])
INNER, OUTER = np.array([1, 2, 2]), np.array([0, 1, 2, 3])


def coo(shape=(3, 3), values=VALUES, indices=FLAT, library=sardonyx):
    device = library.OrtDevice.make("cpu", 0)
    return library.SparseTensor.sparse_coo_from_numpy(list(shape), values, indices, device)


def csr(shape=(3, 3), values=VALUES, inner=INNER, outer=OUTER, library=sardonyx):
    device = library.OrtDevice.make("cpu", 0)
    return library.SparseTensor.sparse_csr_from_numpy(list(shape), values, inner, outer, device)


def facts(x):
    """What a sparse tensor says of itself."""
    if int(x.format()) == 1:
        indices = [x.as_coo_view().indices()]
    else:
        indices = [x.as_csrc_view().inner(), x.as_csrc_view().outer()]
    listed = [(str(a.dtype), a.tolist(), a.shape) for a in (x.values(), *indices)]
    return int(x.format()), x.dense_shape(), x.data_type(), x.device_name(), listed


def _text(value: Any) -> str:
    """The same in every process: tests are known by it."""
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (coo, {}),
        (coo, {"indices": PAIRS}),
        (coo, {"indices": PAIRS.reshape(-1)}),
        (coo, {"indices": FLAT.reshape(3, 1)}),
        (coo, {"indices": FLAT.astype(np.int32)}),
        (coo, {"indices": FLAT.tolist()}),
        (coo, {"indices": FLAT[::-1].copy()}),
        (coo, {"shape": (30,)}),
        (coo, {"shape": (3, 3, 2)}),
        (coo, {"values": VALUES[:0], "indices": FLAT[:0]}),
        (coo, {"values": VALUES[:0], "indices": PAIRS[:0]}),
        (coo, {"shape": (0, 3), "values": VALUES[:0], "indices": FLAT[:0]}),
        (coo, {"values": np.array(["a", "", "öl"])}),
        (csr, {}),
        (csr, {"values": VALUES[:0], "inner": INNER[:0], "outer": OUTER[:0]}),
        (csr, {"values": np.array(["a", "", "öl"])}),
        *((coo, {"values": VALUES.astype(t)}) for t in ("f8", "i4", "i8", "u1")),
    ],
    ids=_text,
)
def test_what_is_made_is_what_onnxruntime_makes(make, arguments):
    onnxruntime = pytest.importorskip("onnxruntime")
    assert facts(make(**arguments)) == facts(make(**arguments, library=onnxruntime))


def test_numbers_are_shared_and_cannot_be_written():
    values, flat = VALUES.copy(), FLAT.copy()
    x = coo(values=values, indices=flat)
    assert np.shares_memory(x.values(), values)
    assert np.shares_memory(x.as_coo_view().indices(), flat)
    assert not x.values().flags.writeable
    assert not x.as_coo_view().indices().flags.writeable
    values[0] = 7
    assert x.values()[0] == 7
    again = SparseTensor(x)
    assert np.shares_memory(again.values(), values)


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.kind != "s"], ids=str)
def test_every_element_type(dtype):
    x = coo(values=np.array([1, 1, 1]).astype(dtype.numpy))
    assert x.data_type() == f"sparse_tensor({dtype.name})"
    assert x.values().dtype == dtype.numpy
    assert x.element_type() == dtype.onnx_id


def test_strings_are_copied():
    given = np.array(["a", "b", "c"], object)
    x = coo(values=given)
    given[0] = "changed"
    x.values()[1] = "changed"
    assert x.values().tolist() == ["a", "b", "c"]
    assert coo(values=np.array([b"a", b"b", "ö".encode()])).values().tolist() == ["a", "b", "ö"]


WRONG = [
    (coo, {"indices": [1, 1, 8]}, "same place"),
    (coo, {"indices": [[0, 1], [2, 2], [0, 1]]}, "same place"),
    (coo, {"indices": [1, 5, 9]}, "outside"),
    (coo, {"indices": [-1, 5, 8]}, "outside"),
    (coo, {"indices": [[0, 1], [1, 3], [2, 2]]}, "outside"),
    (coo, {"indices": np.array([1, 5, 1 << 63], np.uint64)}, "outside"),
    (coo, {"indices": [1, 5]}, "wrong shape"),
    (coo, {"indices": PAIRS.T.copy()}, "wrong shape"),
    (coo, {"indices": [1.0, 5.0, 8.0]}, "whole numbers"),
    (coo, {"indices": np.arange(6)[::2]}, "side by side"),
    (coo, {"values": np.arange(6.0)[::2]}, "side by side"),
    (coo, {"values": VALUES.reshape(1, 3)}, "no list"),
    (coo, {"values": [1.0, 2.0, 3.0]}, "no list"),
    (coo, {"values": np.array([1, 2, 3], object)}, "no string"),
    (coo, {"values": np.array([b"\xff", b"", b""])}, "no text"),
    (coo, {"values": VALUES.astype("datetime64[s]")}, "no element type"),
    (coo, {"shape": (-3, 3)}, "no tensor of shape"),
    (coo, {"shape": (1 << 40, 1 << 40)}, "no tensor of shape"),
    (coo, {"shape": (0, 1 << 70)}, "no tensor of shape"),
    (coo, {"shape": (3.0, 3)}, "whole numbers"),
    (coo, {"shape": ()}, "outside"),
    (csr, {"inner": [1, 2]}, "inner_indices"),
    (csr, {"inner": [1, 2, 3]}, "outside the 3 columns"),
    (csr, {"inner": [-1, 2, 2]}, "outside the 3 columns"),
    (csr, {"inner": [1, 1, 2], "outer": [0, 2, 3, 3]}, "same place"),
    (csr, {"outer": [0, 1, 3]}, "outer_indices"),
    (csr, {"outer": []}, "outer_indices"),
    (csr, {"outer": [0, 9, 2, 3]}, "rise from 0 to 3"),
    (csr, {"outer": [1, 1, 2, 3]}, "rise from 0 to 3"),
    (csr, {"outer": [0, 1, 2, 2]}, "rise from 0 to 3"),
    (csr, {"shape": (3, 3, 1)}, "matrix"),
]


@pytest.mark.parametrize(("make", "arguments", "text"), WRONG, ids=_text)
def test_parts_that_do_not_fit_are_refused(make, arguments, text):
    with pytest.raises(InvalidSparseTensor, match=text) as caught:
        make(**arguments)
    assert isinstance(caught.value, RuntimeError)  # onnxruntime's
    assert isinstance(caught.value, InvalidArgument)


def test_other_formats_are_refused():
    for ask in (coo().as_csrc_view, coo().as_blocksparse_view, csr().as_coo_view):
        with pytest.raises(RuntimeError, match="another format"):
            ask()
    with pytest.raises(ValueError, match="no sparse tensor"):
        SparseTensor(VALUES)


def test_gpus_are_asked_for_by_name():
    with pytest.raises(InvalidSparseTensor, match="no GPU"):
        coo().to_cuda(CPU)
    with pytest.raises(InvalidSparseTensor, match="Strings"):
        coo(values=np.array(["a", "b", "c"])).to_cuda(OrtDevice.make("cuda", 0))
    try:
        there = coo(indices=PAIRS).to_cuda(OrtDevice.make("cuda", 0))
    except EPFail as error:  # there is none
        assert isinstance(error, RuntimeError)
        return
    assert there.device_name() == "cuda"
    np.testing.assert_array_equal(there.values(), VALUES)
    np.testing.assert_array_equal(there.as_coo_view().indices(), PAIRS)
    with pytest.raises(InvalidSparseTensor, match="already"):
        there.to_cuda(OrtDevice.make("cuda", 0))


def test_copies_through_pickle():
    for x in (coo(), csr(), coo(values=np.array(["a", "b", "c"]))):
        assert facts(pickle.loads(pickle.dumps(x))) == facts(x)


def test_values_that_hold_one():
    x = coo()
    value = OrtValue.ort_value_from_sparse_tensor(x)
    assert facts(value.as_sparse_tensor()) == facts(x)
    assert np.shares_memory(value.as_sparse_tensor().values(), x.values())
    assert (value.shape(), value.data_type(), value.element_type(), value.device_name()) == (
        [3, 3], "sparse_tensor(float)", 1, "cpu",
    )  # fmt: skip
    assert value.has_value()
    assert value.is_sparse_tensor()
    assert not value.is_tensor()
    assert not value.is_tensor_sequence()
    for ask in (value.numpy, value.data_ptr, value.tensor_size_in_bytes, value.__dlpack__):
        with pytest.raises(InvalidArgument, match=r"no tensor.*as_sparse_tensor\(\)"):
            ask()
    dense = OrtValue.ortvalue_from_numpy(VALUES)
    assert not dense.is_sparse_tensor()
    with pytest.raises(RuntimeError, match=r"no sparse tensor.*tensor\(float\)"):
        dense.as_sparse_tensor()
    with pytest.raises(InvalidArgument, match=r"no sparse tensor.*ndarray"):
        OrtValue.ort_value_from_sparse_tensor(VALUES)


def test_formats_have_onnxruntimes_numbers():
    assert {f.name: int(f) for f in OrtSparseFormat} == {
        "ORT_SPARSE_UNDEFINED": 0, "ORT_SPARSE_COO": 1, "ORT_SPARSE_CSRC": 2,
        "ORT_SPARSE_BLOCK_SPARSE": 4,
    }  # fmt: skip
