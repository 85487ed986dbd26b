"""How far results are from those of the same graph in double precision, beside onnxruntime.

    python benchmarks/errors.py FOLDER

FOLDER holds models with the feeds beside them (`NAME.onnx`, `NAME.onnx.feeds.npz`), as
`../shared/bench/compare.py --cache FOLDER` leaves them. Every float32 of a graph becomes a float64
(but scales of Resize), which this engine runs. Printed for each model: the largest error of any
output, relative to the largest element of that output, here, here without Winograd's filters, and
in onnxruntime.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper

import sardonyx

_F, _D = TensorProto.FLOAT, TensorProto.DOUBLE


def _wide(tensor: TensorProto) -> None:
    if tensor.data_type == _F:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _scales_of(node: NodeProto) -> int:
    """Number of the input with scales, which are float32 whatever the data are; else too large.

    Resize has (X, scales) in operator set 10, and (X, roi, scales, sizes) from 11 on.
    """
    if node.op_type == "Upsample" or node.op_type == "Resize" and len(node.input) == 2:
        return 1
    return 2 if node.op_type == "Resize" else len(node.input)


def in_double(graph: GraphProto) -> None:
    """Make every float32 of a graph, and of those inside it, a float64."""
    for tensor in graph.initializer:
        _wide(tensor)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == _F:
            value.type.tensor_type.elem_type = _D
    del graph.value_info[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _wide(attribute.t)
            elif attribute.type == AttributeProto.GRAPH:
                in_double(attribute.g)
            elif attribute.name in ("to", "dtype") and attribute.i == _F:
                attribute.i = _D
        if node.op_type == "Constant" and node.attribute[0].name in ("value_float", "value_floats"):
            given = node.attribute[0]
            held = np.float64(given.f) if given.name == "value_float" else np.array(given.floats)
            value = numpy_helper.from_array(np.asarray(held, np.float64))
            node.attribute[0].CopyFrom(onnx.helper.make_attribute("value", value))
    for position, node in reversed(list(enumerate(graph.node))):
        scales = _scales_of(node)
        if scales < len(node.input) and node.input[scales]:
            single = f"{node.input[scales]}_single_{position}"
            cast = onnx.helper.make_node("Cast", [node.input[scales]], [single], to=_F)
            node.input[scales] = single
            graph.node.insert(position, cast)


def _error(got: list[Any], want: list[Any]) -> float:
    found = 0.0
    for a, b in zip(got, want, strict=True):
        if np.asarray(b).dtype.kind == "f" and np.size(b):
            largest = np.abs(b).max() or 1.0
            found = max(found, float(np.abs(np.asarray(a, np.float64) - b).max() / largest))
    return found


def main() -> None:
    """Print the table."""
    print(f"{'':28}{'ours':>10}{'direct':>10}{'ort':>10}{'ours/ort':>10}{'direct/ort':>11}")
    for path in sorted(
        p for p in Path(sys.argv[1]).glob("*.onnx") if not sys.argv[2:] or p.stem in sys.argv[2:]
    ):
        feeds = dict(np.load(f"{path}.feeds.npz"))
        model = onnx.load(path)
        in_double(model.graph)
        wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in feeds.items()}
        want = sardonyx.InferenceSession(model.SerializeToString()).run(None, wide)
        del model
        direct = sardonyx.SessionOptions()
        direct.add_session_config_entry("session.disable_winograd", "1")
        theirs = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        errors = [
            _error(session.run(None, feeds), want)
            for session in (
                sardonyx.InferenceSession(str(path)),
                sardonyx.InferenceSession(str(path), direct),
                theirs,
            )
        ]
        ratios = [e / errors[2] if errors[2] else float("inf") for e in errors[:2]]
        cells = "".join(f"{e:10.1e}" for e in errors) + f"{ratios[0]:10.2f}{ratios[1]:11.2f}"
        print(f"{path.stem:28}{cells}", flush=True)


if __name__ == "__main__":
    main()
