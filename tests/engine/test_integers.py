"""Products and convolutions of 8-bit codes: exact sums, in every layout that kernels know."""

import numpy as np
import pytest

from tests.support.registers import FORMS, choose
from tests.support.session import check, model_of


@pytest.fixture(params=FORMS, autouse=True)
def form(request, monkeypatch):
    choose(request.param, monkeypatch)


KINDS = {"u": np.uint8, "i": np.int8}


def codes(random, kind, *shape):
    limits = np.iinfo(KINDS[kind])
    return random.integers(limits.min, limits.max, shape, KINDS[kind], endpoint=True)


def word(kind):
    return {"u": "uint8", "i": "int8"}[kind]


#: image, weight, attributes.
CONVOLUTIONS = {
    "1x1": ((2, 16, 5, 7), (20, 16, 1, 1), "group = 1"),
    "3x3": ((1, 16, 9, 9), (70, 16, 3, 3), "pads = [1, 1, 1, 1]"),
    "stride": ((1, 8, 9, 10), (33, 8, 3, 3), "pads = [1, 0, 1, 2], strides = [2, 2]"),
    "dilated": ((1, 8, 9, 9), (16, 8, 3, 3), "dilations = [2, 2]"),
    "few channels": ((1, 3, 17, 19), (8, 3, 7, 7), "pads = [3, 3, 3, 3], strides = [2, 2]"),
    "odd channels": ((1, 13, 6, 6), (5, 13, 3, 3), "pads = [1, 1, 1, 1]"),
    "grouped": ((1, 16, 6, 6), (24, 8, 3, 3), "group = 2, pads = [1, 1, 1, 1]"),
    "depthwise": ((1, 12, 6, 6), (12, 1, 3, 3), "group = 12, pads = [1, 1, 1, 1]"),
    "one axis": ((2, 6, 30), (9, 6, 5), "pads = [2, 2]"),
}


#: Which codes have signs is a matter of products: in all forms for three of them.
_SIGNS = [
    *((case, "ui") for case in CONVOLUTIONS),
    *((c, kinds) for kinds in ("ii", "uu", "iu") for c in ("1x1", "odd channels", "depthwise")),
]


@pytest.mark.parametrize(("case", "kinds"), _SIGNS)
def test_conv_integer(case, kinds):
    image, weight, attributes = CONVOLUTIONS[case]
    random = np.random.default_rng(len(case))
    left, right = kinds
    axes, results = (", ".join(names[: len(image)]) for names in ("abcd", "efgh"))
    x_zero, w_zero = 5 if left == "i" else 130, 0 if right == "i" else 117
    model = model_of(
        f"""g ({word(left)}[{axes}] x) => (int32[{results}] y)
        {{ y = ConvInteger <{attributes}> (x, w, p, q) }}""",
        {
            "w": codes(random, right, *weight),
            "p": KINDS[left](x_zero),
            "q": KINDS[right](w_zero),
        },
        13,
    )
    check(model, [{"x": codes(random, left, *image)}] * 2, tolerance="exact")


@pytest.mark.parametrize("kinds", ["ui", "ii", "uu", "iu"])
@pytest.mark.parametrize(
    ("depth", "fixed"), [(1, True), (7, False), (64, True), (130, True), (130, False)]
)
def test_mat_mul_integer(kinds, depth, fixed):
    random = np.random.default_rng(depth)
    left, right = kinds
    b = codes(random, right, depth, 37)
    points = {"p": KINDS[left](17), "q": codes(random, right, 37)}
    inputs = "" if fixed else f", {word(right)}[{depth}, 37] b"
    model = model_of(
        f"""g ({word(left)}[2, r, {depth}] a{inputs}) => (int32[2, r, 37] y)
        {{ y = MatMulInteger (a, b, p, q) }}""",
        points | ({"b": b} if fixed else {}),
        13,
    )
    feeds = [{"a": codes(random, left, 2, rows, depth)} for rows in (1, 5, 17, 40)]
    feeds = feeds if fixed else [f | {"b": b} for f in feeds]
    session = check(model, feeds, tolerance="exact")
    assert "integers_" in session.explain()


@pytest.mark.parametrize("kinds", ["ui", "uu"])
@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize(
    ("image", "weight", "attributes"),
    [
        ((2, 40, 64), (16, 64, 5), ""),
        ((2, 41, 32), (33, 32, 3), "strides = [2]"),
        ((2, 41, 32), (33, 32, 3), "pads = [1, 1]"),
        ((2, 40, 6), (16, 6, 4), ""),
        ((2, 9, 4, 16), (20, 16, 3, 4), ""),
        ((2, 9, 4, 16), (20, 16, 3, 2), ""),
    ],
    ids=["dense", "steps", "padded", "few channels", "whole lines", "parts of lines"],
)
def test_channels_last(image, weight, attributes, fixed, kinds):
    """Rows that lie side by side along channels and taps, in batches that a run gives."""
    random = np.random.default_rng(len(image))
    left, right = kinds
    axes = [0, len(image) - 1, *range(1, len(image) - 1)]
    back = [0, *range(2, len(image)), 1]
    shape = ", ".join(map(str, weight))
    inputs = "" if fixed else f", {word(right)}[{shape}] w"
    names = ", ".join("efgh"[: len(image)])
    model = model_of(
        f"""g ({word(left)}[n, {", ".join(map(str, image[1:]))}] x{inputs}) => (int32[{names}] y)
        {{
            t = Transpose <perm = {axes}> (x)
            c = ConvInteger <{attributes}> (t, w, p, q)
            y = Transpose <perm = {back}> (c)
        }}""".replace("<>", ""),
        {"p": KINDS[left](130), "q": KINDS[right](0 if right == "i" else 117)}
        | ({"w": codes(random, right, *weight)} if fixed else {}),
        13,
    )
    feeds = [{"x": codes(random, left, n, *image[1:])} for n in (1, image[0])]
    if not fixed:
        feeds = [f | {"w": codes(random, right, *weight)} for f in feeds]
    check(model, feeds, tolerance="exact")


def test_zero_points_of_a_run():
    """Zero points that only a run knows, one of them behind a window."""
    random = np.random.default_rng(0)
    model = model_of(
        """g (uint8[1, 8, 6, 6] x, uint8 p, int8 q) => (int32[1, 9, 6, 6] y)
        { y = ConvInteger <pads = [1, 1, 1, 1]> (x, w, p, q) }""",
        {"w": codes(random, "i", 9, 8, 3, 3)},
        13,
    )
    feeds = [
        {"x": codes(random, "u", 1, 8, 6, 6), "p": np.uint8(p), "q": np.int8(q)}
        for p, q in ((0, 0), (255, -128), (7, 3))
    ]
    check(model, feeds, tolerance="exact")
