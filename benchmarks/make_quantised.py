"""Make quantised models of a float model with onnxruntime's own quantiser.

    python benchmarks/make_quantised.py resnet50.onnx OUTPUT_FOLDER

writes, from random calibration data with a fixed seed, one file for each form that users have:

* `qdq_u8s8`: after `quant_pre_process` (batch norms folded), activations uint8, weights int8;
* `qdq_u8s8_channel`: the same, one scale for each output channel;
* `qdq_u8s8_raw`: the file quantised as it was exported;
* `qdq_s8s8`: activations int8 (symmetric weights), after pre-processing;
* `qdq_u8u8`: weights uint8, too;
* `qop_u8s8`: QLinearConv and its family in place of Q / DQ pairs.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

FORMS: dict[str, tuple[bool, QuantFormat, QuantType, QuantType, bool]] = {
    # name: pre-processed, format, activations, weights, one scale per channel
    "qdq_u8s8": (True, QuantFormat.QDQ, QuantType.QUInt8, QuantType.QInt8, False),
    "qdq_u8s8_channel": (True, QuantFormat.QDQ, QuantType.QUInt8, QuantType.QInt8, True),
    "qdq_u8s8_raw": (False, QuantFormat.QDQ, QuantType.QUInt8, QuantType.QInt8, False),
    "qdq_s8s8": (True, QuantFormat.QDQ, QuantType.QInt8, QuantType.QInt8, False),
    "qdq_u8u8": (True, QuantFormat.QDQ, QuantType.QUInt8, QuantType.QUInt8, False),
    "qop_u8s8": (True, QuantFormat.QOperator, QuantType.QUInt8, QuantType.QInt8, False),
}


class RandomImages(CalibrationDataReader):
    """A few feeds of normal random numbers for every float input, the same in every call."""

    def __init__(self, model: Path, count: int = 4) -> None:
        generator = numpy.random.default_rng(5)
        inputs = onnx.load(model, load_external_data=False).graph.input
        feeds = []
        for _ in range(count):
            feed = {}
            for value in inputs:
                shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
                feed[value.name] = generator.standard_normal(shape, dtype=numpy.float32)
            feeds.append(feed)
        self.feeds: Iterator[dict[str, numpy.ndarray]] = iter(feeds)

    def get_next(self) -> dict[str, numpy.ndarray] | None:
        """The next feed; None when there is none."""
        return next(self.feeds, None)


def make(model: Path, folder: Path, names: list[str]) -> None:
    """Write `folder / <model>_<form>.onnx` for each form in `names`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        prepared = Path(temporary) / "prepared.onnx"
        quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
        for name in names:
            preprocessed, form, activations, weights, channels = FORMS[name]
            source = prepared if preprocessed else model
            quantize_static(
                str(source),
                str(folder / f"{model.stem}_{name}.onnx"),
                RandomImages(source),
                quant_format=form,
                activation_type=activations,
                weight_type=weights,
                per_channel=channels,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=list(FORMS))
    arguments = parser.parse_args()
    make(arguments.model, arguments.folder, arguments.forms)
