"""A block of `snippets.txt` with sardonyx in onnxruntime's place, and what it left.

What a reader has by then is made here: small models under the files' names, and, where there is no
GPU, a driver that is the processor. Torch is a stand-in with a stream, if it is not installed.
"""

import contextlib
import importlib.util
import json
import sys
import types
import warnings
from pathlib import Path

import numpy as np

import sardonyx
from sardonyx.api.providers import cuda_is_missing
from tests.support.fake_provider import installed
from tests.support.session import model_of

_ONES = np.ones((1, 1, 3), np.float32)
_IMAGE = "float[1, 4, 512, 512]"
_CONV = "({0}[1, 1, N] x) => ({0}[1, 1, M] y) {{ y = Conv(x, w) }}"
MODELS = {
    "model.onnx": (f"({_IMAGE} data) => ({_IMAGE} out) {{ out = Neg(data) }}", {}),
    "my_model.onnx": ("(float[N, 2] X) => (float[N, 2] Y) { Y = Neg(X) }", {}),
    "my_conv_model.onnx": (_CONV.format("float"), {"w": _ONES}),
    "my_conv_heavy_fp16_model.onnx": (_CONV.format("float16"), {"w": _ONES.astype(np.float16)}),
    "matmul_2.onnx": (
        "(float[N, 2] X) => (float[N, 1] Y) { Y = MatMul(X, w) }",
        {"w": np.array([[1], [2]], np.float32)},
    ),
}


def main(code: str) -> None:
    for name, (text, weights) in MODELS.items():
        Path(name).write_bytes(model_of(f"m {text}", weights).SerializeToString())
    sardonyx.install_as_onnxruntime()
    import onnxruntime

    names = {"np": np, "ort": onnxruntime, "onnxrt": onnxruntime, "onnxruntime": onnxruntime}
    names |= {"model": "matmul_2.onnx", "sess_options": onnxruntime.SessionOptions()}
    names |= {"residual_of_N": 96, "dynamic_block_base": 4, "num_of_threads": 8}
    if importlib.util.find_spec("torch"):
        import torch
    else:
        stream = types.SimpleNamespace(cuda_stream=0)
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(Stream=lambda: stream))
    names["torch"] = torch
    error = ""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            exec(compile(code, "snippet", "exec"), names)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
    session = names.get("session", names.get("sess"))
    options = names["sess_options"] if session is None else session.get_session_options()
    left = {
        "error": error,
        "warnings": [str(w.message) for w in seen],
        "providers": session.get_providers() if session is not None else [],
        "cuda": session.get_provider_options().get("CUDAExecutionProvider", {}) if session else {},
        "y": names["y_ortvalue"].numpy().tolist() if "y_ortvalue" in names else None,
        "threads": options.intra_op_num_threads,
        "profiles": options.enable_profiling,
        "block_base": options.config("session.dynamic_block_base"),
    }
    print(json.dumps(left))


with installed() if cuda_is_missing() else contextlib.nullcontext():
    main(sys.stdin.read())
