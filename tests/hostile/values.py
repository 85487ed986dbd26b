"""Values that break things: numbers at the edges of types, names, paths."""

from __future__ import annotations

import random

INTEGERS = (
    0, 1, -1, 2, 3, -2, -3, 4, 7, 8, 13, 16, 17, 63, 64, 65, 127, 128, 255, 256, 1000, 1 << 15,
    1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, 1 << 46, 1 << 53, 1 << 62, (1 << 63) - 1,
    -(1 << 31), -(1 << 62), -(1 << 63),
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.7, -7.25, 1e-45, 1e10, 3.4e38, -3.4e38,
    float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
TEXTS = (
    "", "x", "y", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "constant", "reflect", "edge",
    "wrap", "linear", "cubic", "nearest", "align_corners", "tf_crop_and_resize", "forward",
    "reverse",
    "bidirectional", "Relu", "Affine", "none", "add", "mul", "max", "ij,jk->ik", "i,i->", "...->",
    "ai.onnx.ml", "ai.onnx", "com.microsoft", "{0}", "%s", "{x!r}", "a\0b", "\u202e\ud7ff",
    "é" * 50, "n" * 3000,
)  # fmt: skip
#: Locations of external data: what must be refused, what is odd, and what is there.
PATHS = (
    "data.bin", "short.bin", "empty.bin", "missing.bin", "sub/data.bin", "./data.bin",
    "../data.bin",
    "sub/../../data.bin", "/etc/passwd", "/proc/self/mem", "/proc/self/maps", "/dev/zero", "pipe",
    "link", "loop", "sub", ".", "", "..", "data.bin/", "C:\\data.bin", "sub\\..\\..\\data.bin",
    "~/data.bin", "file:///etc/passwd", "a\0b", "d" * 5000, "model.onnx",
)  # fmt: skip


def integer(rnd: random.Random, low: int = -(1 << 63), high: int = (1 << 63) - 1) -> int:
    """An integer of a type's range; often one at an edge of something."""
    if rnd.random() < 0.6:
        found = rnd.choice(INTEGERS)
    elif rnd.random() < 0.7:
        found = rnd.randint(-10, 40)
    else:
        found = rnd.getrandbits(rnd.randint(1, 64)) * rnd.choice((1, -1))
    return found if low <= found <= high else low + found % (high - low + 1)


def real(rnd: random.Random) -> float:
    """A floating-point number."""
    return rnd.choice(FLOATS) if rnd.random() < 0.7 else rnd.gauss(0, 10)
