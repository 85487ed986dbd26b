"""Pictures out of files' bytes, by Pillow (ONNX operator spec: ImageDecoder)."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from sardonyx.base import errors
from sardonyx.base.errors import installing, message
from sardonyx.base.interrupt import claim
from sardonyx.base.log import get_logger
from sardonyx.host.functions import host_function

_logger = get_logger("images")

#: Pillow's names of the formats that the standard lists.
_FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")
#: What a pixel takes at most while it is decoded and converted, with 64-bit integers for grey ones.
_PIXEL_BYTES = 24
#: How many channels each pixel format has.
CHANNELS = {"RGB": 3, "BGR": 3, "Grayscale": 1}


def pillow() -> Any:
    """Pillow's module of images.

    Raises:
        NotImplemented: It is not installed.
    """
    try:
        import PIL.Image
    except ImportError:
        what = "Pictures are decoded by Pillow, which is not installed"
        do = installing("images")
        raise errors.NotImplemented(message("ImageDecoder", what, do=do)) from None
    return PIL.Image


@host_function
def decode(encoded: Any, *, pixel_format: str) -> Any:
    """uint8[height, width, channels]; without rows and columns if the bytes are no such picture."""
    module = pillow()
    channels = CHANNELS[pixel_format]
    try:
        with module.open(io.BytesIO(encoded.tobytes()), formats=_FORMATS) as picture:
            # The size stands in the file's head: what it says is not decoded in vain.
            claim(picture.width * picture.height * _PIXEL_BYTES)
            array = _pixels(picture, "L" if channels == 1 else "RGB")
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - each decoder has kinds of its own
        _logger.warning("[ImageDecoder] The picture cannot be decoded, and is empty: %s", error)
        return np.empty((0, 0, channels), np.uint8)
    array = array.reshape(*array.shape[:2], channels)
    return np.ascontiguousarray(array[..., ::-1] if pixel_format == "BGR" else array)


def _pixels(picture: Any, mode: str) -> Any:
    """The pixels of one picture in Pillow's mode `L` or `RGB`."""
    if picture.mode.startswith("I"):  # 16 bits a pixel, which Pillow would cut off at 255
        grey = (np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
        return grey if mode == "L" else np.repeat(grey[..., None], 3, axis=2)
    return np.asarray(picture.convert(mode))
