"""A graph run fused, unfused and by the evaluator, at all its shapes in one session each.

Whole numbers, bools and what no rounding decides must be the same. Other floats are measured
against what the evaluator computes in double. Where they are farther off than some roundings, the
evaluator makes rounding errors at random, and what the graph makes of those is the yardstick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

import sardonyx
from sardonyx.tensor.noise import Noise
from tests.support.oracle import Oracle

#: Roundings by which a float may be off without a closer look.
_NEAR = 8
#: How many times as far off as the evaluator with random errors.
_FACTOR = 12
#: How often the evaluator makes random errors.
_SAMPLES = 5
_EPSILONS = {2: 2.0**-11, 4: 2.0**-24, 8: 2.0**-53}
_TINY = {2: 6e-8, 4: 1e-38, 8: 1e-300}


def difference(model: onnx.ModelProto, feeds: list[dict[str, Any]], threads: int = 1) -> str:
    """The first difference, in words; empty if there is none."""
    oracle = Oracle(model)
    try:
        wants = [oracle.run(feed, double=True) for feed in feeds]
    except Exception as error:
        return f"evaluator: {type(error).__name__}: {error}"
    yardsticks: dict[int, list[Any]] = {}
    for kind in ("fused", "unfused"):
        try:
            session = _session(model, kind, threads)
        except Exception as error:
            return f"{kind} session: {type(error).__name__}: {error}"
        for run, (feed, want) in enumerate(zip(feeds, wants, strict=True)):
            try:
                got = session.run(None, dict(feed))
            except Exception as error:
                return f"{kind} run {run}: {type(error).__name__}: {error}"
            found = _compare(
                model, want, got, lambda r=run: _spread(oracle, feeds[r], wants[r], yardsticks, r)
            )
            if found:
                return f"{kind} run {run}: {found}"
    return ""


def _session(model: onnx.ModelProto, kind: str, threads: int) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if kind == "unfused":
        level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def _compare(
    model: onnx.ModelProto,
    want: list[np.ndarray],
    got: list[np.ndarray],
    yardstick: Callable[[], list[Any]],
) -> str:
    suspects: list[int] = []
    for number, (mine, theirs, output) in enumerate(
        zip(got, want, model.graph.output, strict=True)
    ):
        declared = onnx.helper.tensor_dtype_to_np_dtype(output.type.tensor_type.elem_type)
        where = f"output {number} ({output.name})"
        if mine.dtype != declared:
            return f"{where} is {mine.dtype}, not {declared}"
        if mine.shape != theirs.shape:
            return f"{where} has the shape {mine.shape}, not {theirs.shape}"
        if mine.dtype.kind != "f":
            if not np.array_equal(mine, theirs):
                return f"{where} differs: {_first(mine, theirs, mine != theirs)}"
        elif not np.all(_is_near(mine, theirs, 0.0)):
            suspects.append(number)
    if not suspects:
        return ""
    spread = yardstick()
    for number in suspects:
        near = _is_near(got[number], want[number], spread[number])
        if not np.all(near):
            name = model.graph.output[number].name
            return f"output {number} ({name}) differs: {_first(got[number], want[number], ~near)}"
    return ""


def _is_near(mine: np.ndarray, theirs: np.ndarray, spread: Any) -> np.ndarray:
    width = mine.dtype.itemsize
    wide = mine.astype(np.float64)
    scale = np.abs(theirs)
    with np.errstate(all="ignore"):
        allowed = _NEAR * _EPSILONS[width] * scale + _FACTOR * spread + _TINY[width]
        return (
            (np.abs(wide - theirs) <= allowed)
            | (wide == theirs)
            | (np.isnan(wide) & np.isnan(theirs))
        )


def _spread(
    oracle: Oracle,
    feed: Mapping[str, Any],
    want: list[np.ndarray],
    known: dict[int, list[Any]],
    run: int,
) -> list[Any]:
    """How far random errors move each element, and its neighbours on average."""
    if run not in known:
        found: list[Any] = [np.zeros(w.shape) for w in want]
        for sample in range(_SAMPLES):
            for number, moved in enumerate(oracle.run(feed, noise=Noise(sample))):
                if moved.shape == want[number].shape and moved.dtype.kind == "f":
                    off = np.abs(moved - want[number])
                    found[number] = np.maximum(found[number], np.nan_to_num(off))
        known[run] = [f + np.mean(f) if np.size(f) else f for f in found]
    return known[run]


def _first(mine: np.ndarray, theirs: np.ndarray, bad: Any) -> str:
    at = tuple(int(k) for k in np.argwhere(bad)[0]) if np.ndim(bad) else ()
    return f"{int(np.sum(bad))} of {mine.size}, at {at} {mine[at]!r}, not {theirs[at]!r}"
