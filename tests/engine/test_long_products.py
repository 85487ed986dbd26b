"""Products of very many elements are within 1.1e-6 of the sum of magnitudes, whatever they are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sardonyx
from sardonyx.kernel.matmul.long_sums import LONG
from tests.engine.test_exact_sums import FILLS
from tests.support.session import model_of

BOUND = 1.1e-6
#: In runs of 256, whose sums are added up in float32, equal numbers are 8e-6 off here.
DEPTH = 150_000

#: Equation, and sizes of its letters: a panel, a few rows, more rows than a tile has, columns
#: without rows, neither, batches, sums over several axes, factors that lie across.
EINSUMS = [
    ("mk,kn->mn", {"m": 1, "n": 17}),
    ("mk,kn->mn", {"m": 3, "n": 40}),
    ("mk,kn->mn", {"m": 9, "n": 24}),
    ("mk,kn->nm", {"m": 9, "n": 24}),
    ("km,kn->mn", {"m": 7, "n": 9}),
    ("mk,nk->mn", {"m": 8, "n": 3}),
    ("mk,k->m", {"m": 5}),
    ("k,kn->n", {"n": 20}),
    ("k,k->", {}),
    ("bmk,bkn->bmn", {"b": 2, "m": 2, "n": 10}),
    ("mjk,jkn->mn", {"m": 2, "n": 10, "j": 3, "k": DEPTH // 3}),
    ("jmk,kjn->mn", {"m": 7, "n": 10, "j": 300, "k": DEPTH // 300}),
    ("jmk,jkn->mn", {"m": 2, "n": 10, "j": DEPTH // 2, "k": 2}),
]


def _check(got: Any, wanted: Any, of: Any, bound: float = BOUND) -> None:
    assert got.shape == wanted.shape
    assert (np.abs(np.float64(got) - wanted) / of).max() <= bound


def _product(equation: str, x: Any, w: Any) -> tuple[Any, Any]:
    """The product, and that of magnitudes, in float64."""
    x, w = np.float64(x), np.float64(w)
    return np.einsum(equation, x, w, optimize=True), np.einsum(
        equation, abs(x), abs(w), optimize=True
    )


@pytest.mark.parametrize("sizes", ["known", "any", "weights"])
@pytest.mark.parametrize(("equation", "extents"), EINSUMS)
def test_products(equation: str, extents: dict[str, int], sizes: str) -> None:
    left, right = equation.partition("->")[0].split(",")
    extents = {"k": DEPTH, **extents}
    result = equation.partition("->")[2]

    def value(name: str, letters: str) -> str:
        return (
            f"float[{','.join(c if sizes == 'any' else str(extents[c]) for c in letters)}] {name}"
        )

    feeds = value("x", left) + ("" if sizes == "weights" else ", " + value("w", right))
    text = f'g ({feeds}) => ({value("y", result)}) {{ y = Einsum<equation = "{equation}">(x, w) }}'
    session = None
    # With weights each fill is a model of its own; equal numbers are those that round alike.
    for fill in [FILLS["equal"]] if sizes == "weights" else FILLS.values():
        x, w = (fill(tuple(extents[c] for c in letters)) for letters in (left, right))
        w *= np.float32(2.3)
        model = model_of(text, {"w": w} if sizes == "weights" else {})
        given = {"x": x} if sizes == "weights" else {"x": x, "w": w}
        session = session or sardonyx.InferenceSession(model.SerializeToString())
        (got,) = session.run(None, given)
        _check(got, *_product(equation, x, w))


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "any"])
@pytest.mark.parametrize("rows", [1, 8])
def test_half_floats(rows: int, is_known: bool, kind: Any) -> None:
    """Sums are float32 and better, results are rounded once."""
    name = np.dtype(kind).name
    m, k, n = (rows, DEPTH, 9) if is_known else "mkn"
    text = (
        f"g ({name}[{m}, {k}] x, {name}[{k}, {n}] w) => ({name}[{m}, {n}] y) {{ y = MatMul(x, w) }}"
    )
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    x, w = np.full((rows, DEPTH), 0.3).astype(kind), np.full((DEPTH, 9), 0.7).astype(kind)
    wanted = _product("mk,kn->mn", x, w)[0]
    (got,) = session.run(None, {"x": x, "w": w})
    np.testing.assert_array_equal(got, wanted.astype(kind))


#: Attributes, and shapes of images and filters.
CONVOLUTIONS = [
    ("", (1, 2, 70_000), (5, 2, 69_000)),
    ("strides = [3]", (1, 2, 70_000), (20, 2, 69_900)),
    ("dilations = [2], pads = [3, 3]", (1, 1, 140_000), (9, 1, 70_001)),
    ("", (1, 70_000, 3, 3), (10, 70_000, 1, 1)),
    ("pads = [1, 1, 1, 1]", (1, 8_000, 6, 5), (16, 8_000, 3, 3)),
    ("pads = [4, 4, 4, 4], dilations = [4, 4]", (1, 8_000, 6, 5), (16, 8_000, 3, 3)),
    ("group = 2", (1, 2, 70_000), (2, 1, 69_990)),
    ("group = 2", (1, 140_000, 2, 2), (8, 70_000, 1, 1)),
]
#: Filters that are fed, of known sizes and of any, or that lie in the model.
_SIZES = {
    "known": range(len(CONVOLUTIONS)), "any": (0, 3, 4, 6), "weights": (1, 2, 3, 5, 7),
}  # fmt: skip


@pytest.mark.parametrize(
    ("attributes", "image", "filters", "sizes"),
    [(*CONVOLUTIONS[k], sizes) for sizes, chosen in _SIZES.items() for k in chosen],
)
def test_convolutions(
    attributes: str, image: tuple[int, ...], filters: tuple[int, ...], sizes: str
) -> None:
    """Against the engine's own in float64, which sums short runs, too."""
    x, w = FILLS["equal"](image), FILLS["equal"](filters) * np.float32(2.3)
    found = []
    for kind in ("float", "double"):
        dims = [",".join(map(str, shape)) for shape in (image, filters)]
        if sizes == "any":
            dims = [",".join(f"{c}{k}" for k in range(len(image))) for c in "ab"]
        names = ["x"] if sizes == "weights" else ["x", "w"]
        feeds = ", ".join(f"{kind}[{d}] {n}" for d, n in zip(dims, names, strict=False))
        rank = ",".join(f"y{k}" for k in range(len(image)))
        text = f"g ({feeds}) => ({kind}[{rank}] y) {{ y = Conv<{attributes}>(x, w) }}"
        values = {
            n: v.astype(np.float64 if kind == "double" else np.float32)
            for n, v in (("x", x), ("w", w))
        }
        constants = {} if len(names) == 2 else {"w": values.pop("w")}
        model = model_of(text.replace("<>", ""), constants)
        found += sardonyx.InferenceSession(model.SerializeToString()).run(None, values)
    _check(found[0], found[1], np.abs(found[1]))


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "any"])
@pytest.mark.parametrize("rows", [1, 4, 9])
def test_attention(rows: int, is_known: bool) -> None:
    """Totals of powers, and values times powers: in float32 one after the other 6e-4 off here."""
    q, t = (rows, DEPTH) if is_known else "qt"
    text = f"""g (float[{q}, 8] x, float[{t}, 8] k, float[{t}, 19] v) => (float[{q}, 19] y) {{
        r = Transpose<perm = [1, 0]>(k) s = MatMul(x, r) p = Softmax<axis = 1>(s) y = MatMul(p, v)
    }}"""
    x, k = FILLS["positive"]((rows, 8)), np.zeros((DEPTH, 8), np.float32)
    k[7] = 1
    v = FILLS["equal"]((DEPTH, 19))
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    (got,) = session.run(None, {"x": x, "k": k, "v": v})
    _check(got, np.full((rows, 19), np.float64(v[0, 0])), np.float64(v[0, 0]), 2 * BOUND)


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "any"])
def test_results_do_not_depend_on_threads(is_known: bool) -> None:
    m, k, n = (200, LONG + 5_000, 20) if is_known else "mkn"
    text = f"g (float[{m}, {k}] x, float[{k}, {n}] w) => (float[{m}, {n}] y) {{ y = MatMul(x, w) }}"
    x, w = FILLS["of both signs"]((200, LONG + 5_000)), FILLS["of both signs"]((LONG + 5_000, 20))
    found = []
    for threads in (1, 2):
        options = sardonyx.SessionOptions()
        options.intra_op_num_threads = threads
        session = sardonyx.InferenceSession(model_of(text).SerializeToString(), options)
        found.append(session.run(None, {"x": x, "w": w})[0])
    np.testing.assert_array_equal(*found)
    _check(found[0], *_product("mk,kn->mn", x, w))


def test_infinities_and_nan_stay() -> None:
    text = "g (float[m, k] x, float[k, n] w) => (float[m, n] y) { y = MatMul(x, w) }"
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    x = np.ones((5, DEPTH), np.float32)
    x[0, 77], x[1, -1], x[2, [3, 90_000]], x[3, 2_000] = np.inf, -np.inf, [np.inf, -np.inf], np.nan
    (got,) = session.run(None, {"x": x, "w": np.ones((DEPTH, 1), np.float32)})
    wanted = np.array([np.inf, -np.inf, np.nan, np.nan, DEPTH])
    np.testing.assert_array_equal(got[:, 0], wanted)
