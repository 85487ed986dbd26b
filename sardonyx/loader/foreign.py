"""What a file is that is no ONNX model, by how it begins."""

from __future__ import annotations

from sardonyx.base.files import BUNDLE_MAGIC

HEAD_BYTES = 512
_CONVERT = "`sardonyx convert` makes an ONNX model of it"
#: Where, which bytes, and what to do.
_SIGNS = (
    (0, BUNDLE_MAGIC, "It is a bundle, compiled code that sessions, `sardonyx run` and `sardonyx "
     "perf` take. Give the ONNX file that it was made of"),
    (4, b"ORTM", "It is a model in onnxruntime's own format: give the ONNX file it was made of"),
    (4, b"TFL3", "It is a model of TensorFlow Lite: give an ONNX model"),
    (0, b"GGUF", "It is a file of GGUF: give an ONNX model"),
    (0, b"\x89HDF", f"It is a file of HDF5, as Keras writes them: {_CONVERT}"),
    (0, b"PK\x03\x04", f"It is a zip archive, as PyTorch and Keras write them: {_CONVERT}"),
    (0, b"\x80", f"It is a pickle, as PyTorch and scikit-learn write them: {_CONVERT}"),
    (0, b"version https://git-lfs", "It is a pointer of Git LFS: `git lfs pull` fetches the file"),
    (0, b"\x93NUMPY", "It is a NumPy array: give an ONNX model"),
    (0, b"\x1f\x8b", "It is compressed with gzip: unpack it first"),
)  # fmt: skip


def advice(head: bytes) -> str:
    """A sentence without its full stop about a file that begins with `head`, and what to give."""
    for place, sign, text in _SIGNS:
        if head[place : place + len(sign)] == sign:
            return text
    if not head:
        return "Give an ONNX model"
    printable = sum(32 <= byte < 127 or byte in b"\t\r\n" for byte in head)
    if printable == len(head):
        return "It is a text: give an ONNX model"
    return "Give an ONNX model, which is damaged if this should be one"
