"""ImageDecoder (ONNX operator spec): done by the host."""

from __future__ import annotations

from sardonyx.base.dtypes import UINT8
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.host.images import CHANNELS, pillow
from sardonyx.ops.core.object_values import call_for_tensor
from sardonyx.ops.core.registry import op
from sardonyx.tensor.tensor import Tensor


@op("ImageDecoder", 20)
def image_decoder_20(encoded: Tensor, *, pixel_format: str = "RGB") -> Tensor:
    """uint8[height, width, channels] of the bytes of a file; empty if they cannot be decoded."""
    if encoded.dtype is not UINT8 or encoded.rank != 1:
        what = "The encoded picture is no tensor of bytes along one axis"
        got = f"{encoded.dtype}{list(encoded.shape)}"
        raise InvalidGraph(message("ImageDecoder", what, expected="uint8[length]", got=got))
    if pixel_format not in CHANNELS:
        expected = ", ".join(CHANNELS)
        raise InvalidGraph(
            message("ImageDecoder", "Bad pixel_format", expected=expected, got=pixel_format)
        )
    pillow()
    shape = (None, None, CHANNELS[pixel_format])
    return call_for_tensor("images.decode", [encoded], UINT8, shape, pixel_format=pixel_format)
