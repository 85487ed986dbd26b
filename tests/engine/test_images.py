"""ImageDecoder: formats, pixel formats, and what is no picture."""

import io
import sys

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidGraph, NotImplemented, RuntimeException
from tests.support.session import model_of

TEXT = 'g (uint8[n] x) => (uint8[h, w, c] y) {{ y = ImageDecoder<pixel_format = "{}">(x) }}'


def session_of(pixel_format):
    if sys.modules.get("PIL", True):
        pytest.importorskip("PIL", reason="pictures need Pillow")
    model = model_of(TEXT.format(pixel_format), opset=20)
    return sardonyx.InferenceSession(model.SerializeToString())


def picture(height=5, width=7, channels=3):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(height).integers(0, 256, shape, dtype=np.uint8)


def encoded(array, format_, **facts):
    images = pytest.importorskip("PIL.Image", reason="pictures need Pillow")
    stream = io.BytesIO()
    images.fromarray(array).save(stream, format_, **facts)
    return np.frombuffer(stream.getvalue(), np.uint8)


LOSSLESS = [
    ("BMP", {}),
    ("PNG", {}),
    ("PPM", {}),
    ("TIFF", {}),
    ("WEBP", {"lossless": True}),
    ("JPEG2000", {"irreversible": False}),
]


@pytest.mark.parametrize(("format_", "facts"), LOSSLESS)
def test_formats(format_, facts):
    colours, grey = picture(), picture(9, 4, 1)
    session = session_of("RGB")
    for array in (colours, grey):  # of different sizes, in one session
        (y,) = session.run(None, {"x": encoded(array, format_, **facts)})
        wanted = array if array.ndim == 3 else np.repeat(array[..., None], 3, 2)
        np.testing.assert_array_equal(y, wanted)
    data = encoded(colours, format_, **facts)
    np.testing.assert_array_equal(session_of("BGR").run(None, {"x": data})[0], colours[..., ::-1])
    (y,) = session_of("Grayscale").run(None, {"x": data})
    weights = np.array([299, 587, 114])  # ITU-R 601-2
    assert y.shape == (5, 7, 1)
    assert np.abs(y[..., 0] - colours @ weights / 1000).max() <= 1


def test_lossy():
    smooth = np.add.outer(np.arange(16) * 4, np.arange(24) * 5)[..., None] + np.array([0, 20, 60])
    smooth = smooth.astype(np.uint8)
    data = encoded(smooth, "JPEG", quality=95, subsampling=0)
    (y,) = session_of("RGB").run(None, {"x": data})
    assert np.abs(y.astype(int) - smooth).max() <= 8


def test_sixteen_bits_and_transparency():
    deep = (np.arange(12, dtype=np.uint16) * 5000).reshape(3, 4)
    (y,) = session_of("Grayscale").run(None, {"x": encoded(deep, "PNG")})
    np.testing.assert_array_equal(y[..., 0], deep >> 8)
    clear = np.concatenate([picture(), picture(5, 7, 1)[..., None]], 2)
    (y,) = session_of("RGB").run(None, {"x": encoded(clear, "PNG")})
    np.testing.assert_array_equal(y, clear[..., :3])


@pytest.mark.parametrize("cut", [None, 0, 20, 60])
def test_what_is_no_picture_is_empty(cut):
    data = encoded(picture(40, 40), "PNG")[:cut] if cut is not None else encoded(picture(), "GIF")
    (y,) = session_of("RGB").run(None, {"x": data})
    assert (y.shape, y.dtype) == ((0, 0, 3), np.uint8)


def test_without_pillow(monkeypatch):
    cached = session_of("RGB")
    data = encoded(picture(), "PNG")
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    monkeypatch.setenv("SARDONYX_CACHE", "off")
    with pytest.raises(NotImplemented, match=r"node .* \(ImageDecoder\).*\.\[images\]"):
        session_of("RGB")
    with pytest.raises(RuntimeException, match=r"ImageDecoder.*\.\[images\]"):
        cached.run(None, {"x": data})


def test_refusals():
    pytest.importorskip("PIL", reason="pictures need Pillow")
    with pytest.raises(InvalidGraph, match="Bad pixel_format.*CMYK"):
        session_of("CMYK")
    text = "g (float[n] x) => (uint8[h, w, c] y) { y = ImageDecoder(x) }"
    with pytest.raises(InvalidGraph, match="The type of its input"):
        sardonyx.InferenceSession(model_of(text, opset=20).SerializeToString())
