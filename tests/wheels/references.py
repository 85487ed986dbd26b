"""What onnxruntime made of every case: samples, sums over blocks, and what is read off them.

`data/references.npz` holds for output `i` of a case, under the key `model/case/i/...`:

- `shape`;
- `samples`: the values at `positions(size)`;
- `peak_places`, `peaks`: the largest values, and some down to a thousandth of them, which
  samples of a distribution over many classes miss;
- `sums`, `magnitudes`: of the values, and of their absolute values, in BLOCKS runs of elements.

`data/decoded.json` holds what is read off all outputs.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np

from tests.wheels.prepare import DATA

ARRAYS, DECODED = DATA / "references.npz", DATA / "decoded.json"
SAMPLES, PEAKS, BLOCKS = 1024, 256, 64

# Of the largest magnitude, of each value, and where values vanish. The last covers onnxruntime's
# Sigmoid, which is off by up to 5e-3 of its value where that is under 1e-4.
OF_LARGEST, OF_VALUE, AT_ZERO = 1e-4, 1e-3, 1e-5


def positions(size: int) -> Any:
    """Places spread over an output: all of a small one; no generator, so the same for ever."""
    if size <= SAMPLES:
        return np.arange(size)
    # A stride near the golden section visits every region; a prime shares no factor with sizes.
    step = 2_654_435_761
    return np.sort(np.array([(i * step + size // 3) % size for i in range(SAMPLES)]))


def describe(output: Any) -> dict[str, Any]:
    """The arrays stored for one output."""
    flat = output.reshape(-1)
    order = np.argsort(-np.abs(flat), kind="stable")
    large = int((np.abs(flat) >= 1e-3 * np.abs(flat[order[0]])).sum())
    spread = np.linspace(0, large - 1, min(PEAKS, large)).astype(np.int64)
    places = np.union1d(order[: PEAKS // 2], order[spread])
    sums, magnitudes = _blocks(flat)
    return {
        "shape": np.array(output.shape),
        "samples": flat[positions(flat.size)],
        "peak_places": places.astype(np.int32),
        "peaks": flat[places],
        "sums": sums,
        "magnitudes": magnitudes,
    }


def _blocks(flat: Any) -> tuple[Any, Any]:
    runs = np.array_split(flat.astype(np.float64), BLOCKS)
    return np.array([run.sum() for run in runs]), np.array([np.abs(run).sum() for run in runs])


def check(output: Any, want: dict[str, Any]) -> None:
    """Fail where an output is not what was stored."""
    assert output.shape == tuple(want["shape"])
    assert output.dtype == want["samples"].dtype
    assert np.isfinite(output).all()
    flat = output.reshape(-1)
    largest = np.abs(want["peaks"]).max()
    for got, expected in (
        (flat[positions(flat.size)], want["samples"]),
        (flat[want["peak_places"]], want["peaks"]),
    ):
        np.testing.assert_allclose(got, expected, rtol=0, atol=OF_LARGEST * largest)
        near_zero = AT_ZERO * max(1.0, float(largest))
        np.testing.assert_allclose(got, expected, rtol=OF_VALUE, atol=near_zero)
    sums, _ = _blocks(flat)
    # Errors of one sign add up over a block: each of its values may be off by the near-zero share.
    slack = OF_LARGEST * want["magnitudes"] + near_zero * -(-flat.size // BLOCKS)
    assert (np.abs(sums - want["sums"]) <= slack).all()


@functools.cache
def _arrays() -> dict[str, Any]:
    with np.load(ARRAYS) as stored:
        return dict(stored)


def cases() -> list[tuple[str, str]]:
    """Model and case of everything stored."""
    arrays = {(key.split("/")[0], key.split("/")[1]) for key in _arrays()}
    readings = {(model, case) for model, found in _decoded().items() for case in found}
    return sorted(arrays & readings) if arrays == readings else []


def stored(model: str, case: str) -> list[dict[str, Any]]:
    """The references of each output of a case."""
    found: dict[int, dict[str, Any]] = {}
    for key, array in _arrays().items():
        name, of, index, kind = key.split("/")
        if (name, of) == (model, case):
            found.setdefault(int(index), {})[kind] = array
    return [found[index] for index in sorted(found)]


@functools.cache
def _decoded() -> dict[str, Any]:
    return json.loads(DECODED.read_text("utf-8"))


def decoded(model: str, case: str) -> Any:
    """What was read off a case."""
    return _decoded()[model][case]


def same(got: Any, want: Any) -> bool:
    """Equal, where boxes' edges may differ by a twentieth of a pixel."""
    if isinstance(want, list):
        return (
            isinstance(got, list)
            and len(got) == len(want)
            and all(same(one, other) for one, other in zip(got, want, strict=True))
        )
    if isinstance(want, float):
        return bool(abs(got - want) <= 0.05)
    return bool(got == want)
