"""Pictures, and what the packages that ship the models do to a picture before the model sees it.

Everything up to the normalisation is integer arithmetic, so feeds are the same on every machine.
Pictures are stored as red, green, blue; the models want the channels reversed and first. Both are
done by strides alone, so what a session is fed is a view that walks backwards and in jumps.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np

from tests.wheels import png

DATA = Path(__file__).parent / "data"

LINE_HEIGHT = 36
# Each line of `lines.png`, and its width in pixels.
LINES = (
    ("sardonyx", 118),
    ("The quick brown fox jumps over", 369),
    ("ONNX 12345.67 EUR", 241),
    ("Hi", 38),
    ("maps, reductions, contractions and calls", 457),
    ("Lazy dogs, again?", 211),
)


@functools.cache
def picture(name: str) -> Any:
    """A stored picture (H, W, 3) of uint8."""
    return png.read(DATA / f"{name}.png")


def line(row: int) -> Any:
    """One line of text (LINE_HEIGHT, W, 3)."""
    _, width = LINES[row]
    return picture("lines")[LINE_HEIGHT * row : LINE_HEIGHT * (row + 1), :width]


def resize(pixels: Any, height: int, width: int) -> Any:
    """Bilinear interpolation with weights in 1/2048, rounded: no float takes part."""
    row, next_row, down = _steps(pixels.shape[0], height)
    column, next_column, right = _steps(pixels.shape[1], width)
    down, right, wide = down[:, None, None], right[:, None], pixels.astype(np.int64)
    wide = wide[row] * (2048 - down) + wide[next_row] * down
    wide = wide[:, column] * (2048 - right) + wide[:, next_column] * right
    return ((wide + (1 << 21)) >> 22).astype(np.uint8)


def _steps(old: int, new: int) -> tuple[Any, Any, Any]:
    """For each new pixel the two old ones around its centre, and the weight of the second."""
    place = ((2 * np.arange(new) + 1) * old * 2048) // (2 * new) - 1024
    place = place.clip(0, (old - 1) * 2048)
    first = place // 2048
    return first, np.minimum(first + 1, old - 1), place % 2048


def as_feed(batch: Any) -> Any:
    """(N, H, W, RGB) seen as (N, BGR, H, W)."""
    return batch[..., ::-1].transpose(0, 3, 1, 2)


def scale_half(pixels: Any) -> Any:
    """From bytes to -1 .. 1."""
    return (pixels.astype(np.float32) / np.float32(255) - np.float32(0.5)) / np.float32(0.5)


def scale_imagenet(pixels: Any) -> Any:
    """The means and deviations of ImageNet, in the order of the reversed channels."""
    mean = np.array([0.406, 0.456, 0.485], np.float32)
    deviation = np.array([0.225, 0.224, 0.229], np.float32)
    return (pixels.astype(np.float32) / np.float32(255) - mean) / deviation


def whole(name: str, height: int, width: int) -> Any:
    """PP-OCR's detector: the picture at a multiple of 32."""
    return as_feed(scale_half(resize(picture(name), height, width))[None])


def strips(*pictures: Any, height: int = 48, width: int | None = None) -> Any:
    """PP-OCR's recogniser and classifier: one height, padded with zeros to the widest."""
    widths = [math.ceil(height * each.shape[1] / each.shape[0]) for each in pictures]
    width = width or max(widths)
    batch = np.zeros((len(pictures), height, width, 3), np.float32)
    for place, each, own in zip(batch, pictures, widths, strict=True):
        own = min(own, width)
        place[:, :own] = scale_half(resize(each, height, own))
    return as_feed(batch)


def grey(pixels: Any) -> Any:
    """ddddocr's recogniser: brightness at a height of 64, stored column by column."""
    resized = resize(pixels, 64, 64 * pixels.shape[1] // pixels.shape[0]).astype(np.int64)
    bright = (resized @ np.array([19595, 38470, 7471]) + (1 << 15)) >> 16
    return np.asfortranarray(bright.astype(np.float32) / np.float32(255))[None, None]


def letterbox(name: str, height: int, width: int) -> Any:
    """YOLOX: the picture as large as it goes, in the corner of a grey one; bytes as floats."""
    pixels = picture(name)
    ratio = min(height / pixels.shape[0], width / pixels.shape[1])
    high, wide = int(pixels.shape[0] * ratio), int(pixels.shape[1] * ratio)
    padded = np.full((1, height, width, 3), 114, np.float32)
    padded[0, :high, :wide] = resize(pixels, high, wide)
    return as_feed(padded)


def stretched(name: str, height: int, width: int) -> Any:
    """PicoDet: the picture at the model's size."""
    return as_feed(scale_imagenet(resize(picture(name), height, width))[None])


def turned(name: str, *quarters: int) -> Any:
    """PP-LCNet for orientation: shorter side 256, the middle 224 x 224, once for each turn."""
    batch = []
    for quarter in quarters:
        pixels = np.rot90(picture(name), quarter)
        height, width = pixels.shape[:2]
        short = min(height, width)
        pixels = resize(pixels, height * 256 // short, width * 256 // short)
        top, left = ((side - 224) // 2 for side in pixels.shape[:2])
        batch.append(scale_imagenet(pixels[top : top + 224, left : left + 224]))
    return as_feed(np.stack(batch))


def first_and_last_bytes(*contents: bytes) -> Any:
    """Magika: 1024 bytes from both ends as integers, 256 where there are none."""
    tokens = np.full((2048, len(contents)), 256, np.int32)
    for column, content in enumerate(contents):
        head, tail = content[:4096].strip()[:1024], content[-4096:].strip()[-1024:]
        tokens[: len(head), column] = np.frombuffer(head, np.uint8)
        tokens[2048 - len(tail) :, column] = np.frombuffer(tail, np.uint8)
    return tokens.T
