"""Joins along another axis than that of the lanes: one load, wherever the row lies."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from sardonyx.compiler.stages import stage_text
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(37)
_TYPES = {"float": np.float32, "double": np.float64, "uint8": np.uint8, "float16": np.float16}
_HEADS, _WIDTH = 3, 37


def _array(*shape: int, kind: type) -> np.ndarray:
    return (_random.standard_normal(shape) * 50).astype(kind)


@pytest.mark.parametrize("name", _TYPES)
@pytest.mark.parametrize("width", [16, 37, 64])
@pytest.mark.parametrize("parts", [2, 3, 5])
def test_joined_rows(name: str, width: int, parts: int) -> None:
    inputs = ", ".join(f"{name}[{_HEADS},N{k},{width}] x{k}" for k in range(parts))
    names = ", ".join(f"x{k}" for k in range(parts))
    text = f"t ({inputs}) => ({name}[{_HEADS},M,{width}] y) {{ y = Concat<axis = 1>({names}) }}"
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    for lengths in [(4, 1, 0, 2, 7), (0, 1, 3, 0, 2), (1, 0, 0, 0, 1), (0, 0, 0, 0, 0)]:
        feeds = {
            f"x{k}": _array(_HEADS, lengths[k], width, kind=_TYPES[name]) for k in range(parts)
        }
        (got,) = session.run(None, feeds)
        np.testing.assert_array_equal(got, np.concatenate([*feeds.values()], 1))
        assert got.dtype == _TYPES[name]


#: What is done with a join, and the same in NumPy. Both parts, one of them transposed; a part that
#: is computed; a part of zeros; a condition that is data.
_USES = {
    "scaled": ("j = Concat<axis = 1>(a, b) y = Mul(j, j)", lambda j: j * j),
    "summed": ("j = Concat<axis = 1>(a, b) y = ReduceSum<keepdims = 0>(j, l)", lambda j: j.sum(2)),
    "normalised": (
        "j = Concat<axis = 1>(a, b) y = Softmax(j)",
        lambda j: (
            np.exp(j - j.max(2, keepdims=True))
            / np.exp(j - j.max(2, keepdims=True)).sum(2, keepdims=True)
        ),
    ),
    "computed": (
        "n = Neg(b) j = Concat<axis = 1>(a, n) y = Add(j, j)",
        lambda j: 2 * np.concatenate([j[:, :5], -j[:, 5:]], 1),
    ),
}


@pytest.mark.parametrize("use", _USES)
def test_what_is_made_of_a_join(use: str) -> None:
    body, expected = _USES[use]
    inputs = f"float[{_HEADS},N,{_WIDTH}] a, float[{_HEADS},P,{_WIDTH}] b"
    text = f"t ({inputs}) => (float y) <int64[1] l = {{2}}> {{ {body} }}"
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    a, b = (_array(_HEADS, n, _WIDTH, kind=np.float32) / 50 for n in (5, 2))
    (got,) = session.run(None, {"a": a, "b": b})
    want = expected(np.concatenate([a, b], 1).astype(np.float64))
    assert_near(got, want, "float: short sums")


@pytest.mark.parametrize("parts", [2, 3])
def test_rows_chosen_by_data(parts: int) -> None:
    """The condition lies in memory; that of an inner choice is read only where it counts."""
    inner = "Where(d, b, c)" if parts == 3 else "Identity(b)"
    text = (
        "t (bool[N,1] k, bool[N,1] d, float[N,40] a, float[N,40] b, float[N,40] c)"
        f" => (float[N,40] y) {{ i = {inner} y = Where(k, a, i) }}"
    )
    session = sardonyx.InferenceSession(model_of(text).SerializeToString())
    a, b, c = (_array(9, 40, kind=np.float32) for _ in range(3))
    k, d = (_random.integers(0, 2, (9, 1)).astype(bool) for _ in range(2))
    (got,) = session.run(None, {"k": k, "d": d, "a": a, "b": b, "c": c})
    np.testing.assert_array_equal(got, np.where(k, a, np.where(d, b, c) if parts == 3 else b))


def test_one_load_without_a_mask() -> None:
    text = (
        "t (float[2,N,64] a, float[2,P,64] b) => (float[2,M,64] y) { y = Concat<axis = 1>(a, b) }"
    )
    kernels = stage_text(model_of(text).SerializeToString(), "kernels")
    joined = kernels[kernels.index("parallel") :].split("\nkernel")[0]
    assert joined.count(" = load ") == 1 and "i1x" not in joined, joined
