"""Tables of indices that are read only where their part of a join is: elsewhere they end before."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_random = np.random.default_rng(29)
#: Stands before and behind each table: no index of anything here.
_FAR = 10**6


def _run(text: str, feeds: dict[str, np.ndarray]) -> np.ndarray:
    session = sardonyx.InferenceSession(model_of(text, None, 19).SerializeToString())
    found: np.ndarray = session.run(None, feeds)[0]
    return found


def _between(table: np.ndarray) -> np.ndarray:
    """A copy with other numbers before and behind it."""
    whole = np.full(len(table) + 200, _FAR)
    whole[100:-100] = table
    return whole[100:-100]


_JOINED = """a = Gather<axis = {axis}>(x, t0) b = Gather<axis = {axis}>(x, t1)
        c = Gather<axis = {axis}>(x, t2) j = Concat<axis = {axis}>(a, x, b, c)"""


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(9, 9), (4, 40), (40, 4), (16, 16)], ids=str)
@pytest.mark.parametrize("kind", ["elements", "gather", "pad", "softmax"])
def test_joins_of_gathers(axis: int, shape: tuple[int, int], kind: str) -> None:
    x = _random.standard_normal(shape).astype(np.float32)
    tables = [_random.integers(-shape[axis], shape[axis], n) for n in (5, 3, 17)]
    a, b, c = (np.take(x, table, axis) for table in tables)
    joined = np.concatenate([a, x, b, c], axis)
    extent = joined.shape[axis]
    few = (shape[0], 6) if axis else (6, shape[1])  # of few results, the join is a part
    chosen = _random.integers(-extent, extent, few)
    if kind == "elements":
        last = f"y = GatherElements<axis = {axis}>(j, e)"
        want = np.take_along_axis(joined, chosen, axis)
    elif kind == "gather":
        chosen = chosen.ravel()[:9]
        last = f"y = Gather<axis = {axis}>(j, e)"
        want = np.take(joined, chosen, axis)
    elif kind == "pad":
        chosen = np.array([2, 1, 3, 2])
        last = 'y = Pad<mode = "reflect">(j, e)'
        want = np.pad(joined, [(2, 3), (1, 2)], mode="reflect")
    else:
        last = f"y = Softmax<axis = {1 - axis}>(j)"
        power = np.exp(joined.astype(np.float64))
        want = power / power.sum(1 - axis, keepdims=True)
    sizes = [",".join(map(str, s)) for s in (shape, chosen.shape)]
    numbers = ",".join(map(str, chosen.ravel()))
    text = f"""graph (float[{sizes[0]}] x, int64[5] t0, int64[3] t1, int64[17] t2)
        => (float[P,Q] y) <int64[{sizes[1]}] e = {{{numbers}}}> {{
        {_JOINED.format(axis=axis)} {last} }}"""
    feeds = {"x": x} | {f"t{k}": _between(table) for k, table in enumerate(tables)}
    assert_near(_run(text, feeds), want, "float: normalised")


@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("width", [7, 40])
def test_where_reads_tables_in_some_lanes(rows: int, width: int) -> None:
    """An index that is wrong where it does not count is no fault; where it counts, it is."""
    x = _random.standard_normal((rows, 6)).astype(np.float32)
    table = _random.integers(-6, 6, width)
    text = f"""graph (float[{rows},6] x, int64[{width}] t, bool[{width}] c) => (float[P,Q] y) {{
        z = Constant<value = int64 {{0}}>() s = Where(c, t, z)
        g = Gather<axis = 1>(x, s) y = Neg(g) }}"""
    counts = _random.random(width) < 0.5
    counts[0] = True
    wrong = np.where(counts, table, _FAR)
    feeds = {"x": x, "t": wrong, "c": counts}
    np.testing.assert_array_equal(_run(text, feeds), -x[:, np.where(counts, table, 0)])
    feeds["t"] = np.full(width, _FAR)
    with pytest.raises(sardonyx.base.errors.SardonyxError, match="out of range"):
        _run(text, feeds)
