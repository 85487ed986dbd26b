"""`sardonyx demo`: rapidocr, unchanged, reads a picture with sardonyx in onnxruntime's place."""

from __future__ import annotations

import argparse
import io
import time
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.api.stand_in import install_as_onnxruntime
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, SardonyxError, installing, message
from sardonyx.base.files import read_file
from sardonyx.cli.output import say
from sardonyx.tools.targets import check_targets

_MOST_BYTES = 1 << 28
LINES = ("Hello from sardonyx", "ONNX models, compiled", "The quick brown fox 0123456789")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to read, where to write."""
    parser.add_argument("--image", type=Path, help="a picture to read instead of a drawn one")
    parser.add_argument(
        "--output", type=Path, default=Path("demo.png"), help="annotated picture (demo.png)"
    )


def run(options: argparse.Namespace) -> int:
    """Draw, read, print, annotate."""
    check_targets(options.image, options.output)
    install_as_onnxruntime()
    try:
        from PIL import Image
        from rapidocr import RapidOCR
    except ImportError as error:
        raise errors.NotFound(
            message("demo", f"A package is missing ({error})", do=installing("demo"))
        ) from None
    picture = _read(options.image, Image) if options.image else draw(LINES)
    start = time.perf_counter()
    engine = RapidOCR(params={"Global.log_level": "warning"})  # else it tells where its files lie
    loaded = time.perf_counter() - start
    pixels = np.asarray(picture)[:, :, ::-1]  # rapidocr takes blue, green, red
    start = time.perf_counter()
    found = engine(pixels)
    first = time.perf_counter() - start
    start = time.perf_counter()
    found = engine(pixels)
    again = time.perf_counter() - start
    if found.txts is None:
        say("no text was found")
        return 1
    for text, score in zip(found.txts, found.scores, strict=True):
        say(f"{score:.3f}  {text}")
    say(
        f"read in {again * 1e3:.0f} ms; "
        f"the first time, with making three sessions, in {(loaded + first) * 1e3:.0f} ms"
    )
    annotate(picture, found.boxes).save(options.output)
    say(f"annotated picture: {options.output}")
    return 0


def _read(path: Path, images: Any) -> Any:
    try:
        return images.open(io.BytesIO(read_file(path, _MOST_BYTES, takes_pipe=True))).convert("RGB")
    except (OSError, ValueError, SyntaxError) as error:
        if isinstance(error, SardonyxError):
            raise
        raise InvalidArgument(message(str(path), f"This is no picture: {error}")) from None


def draw(lines: tuple[str, ...]) -> Any:
    """A picture of text, black on white, in Pillow's own font."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (760, 90 * len(lines) + 40), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(40)
    for number, line in enumerate(lines):
        pen.text((30, 30 + 90 * number), line, fill="black", font=font)
    return picture


def annotate(picture: Any, boxes: Any) -> Any:
    """The picture with a frame around each piece of text."""
    from PIL import ImageDraw

    pen = ImageDraw.Draw(picture)
    for box in boxes:
        corners = [(float(x), float(y)) for x, y in box]
        pen.line([*corners, corners[0]], fill="red", width=3)
    return picture
