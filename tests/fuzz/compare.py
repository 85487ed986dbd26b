"""A graph run fused, unfused and by the evaluator, at all its shapes in one session each.

Whole numbers, bools and what no rounding decides must be the same. Other floats are measured
against what the evaluator computes in double. Where they are farther off than some roundings, the
evaluator makes rounding errors at random, and what the graph makes of those is the yardstick.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

import sardonyx
from sardonyx.tensor.noise import Noise
from tests.support.oracle import Oracle
from tests.support.surrounded import Target, surrounded

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
    yardsticks = [_Yardstick(oracle, feed, want) for feed, want in zip(feeds, wants, strict=True)]
    for kind in ("fused", "unfused"):
        try:
            session = _session(model, kind, threads)
        except Exception as error:
            return f"{kind} session: {type(error).__name__}: {error}"
        for run, (feed, yardstick) in enumerate(zip(feeds, yardsticks, strict=True)):
            try:
                wants = yardstick.want if kind == "fused" else []
                got, outside = _run(model, session, feed, wants)
            except Exception as error:
                return f"{kind} run {run}: {type(error).__name__}: {error}"
            found = outside or _compare(model, got, yardstick)
            if found:
                return f"{kind} run {run}: {found}"
    return ""


def _run(
    model: onnx.ModelProto,
    session: sardonyx.InferenceSession,
    feed: Mapping[str, Any],
    wants: list[np.ndarray],
) -> tuple[list[Any], str]:
    """What a run gives, and what it wrote beside the results that are wanted, in words.

    With `wants`, results come to memory between marks. Feeds lie between other numbers.
    """
    feeds = {name: surrounded(x) for name, x in feed.items()}
    if not wants or any(w.dtype.kind in "OSU" for w in wants):
        return session.run(None, feeds), ""
    targets = [
        Target(w.shape, np.dtype(_declared(output)))
        for w, output in zip(wants, model.graph.output, strict=True)
    ]
    session.run(None, feeds, out=[t.array for t in targets])
    for number, target in enumerate(targets):
        if target.changed_marks():
            return [], f"{target.changed_marks()} bytes beside output {number} were written"
    return [t.array for t in targets], ""


def _session(model: onnx.ModelProto, kind: str, threads: int) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if kind == "unfused":
        level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def difference_or_crash(
    model: onnx.ModelProto, feeds: list[dict[str, Any]], threads: int = 1
) -> str:
    """`difference`, found in a child process, whose crash is one, too."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with os.fdopen(write, "w") as pipe:
            pipe.write(difference(model, feeds, threads))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        found = pipe.read()
    _, status = os.waitpid(child, 0)
    return f"crash: {os.waitstatus_to_exitcode(status)}" if status else found


class _Yardstick:
    """How far from what the evaluator computes in double each element may be.

    Random errors are made only as often as something is left that they do not explain.
    """

    def __init__(self, oracle: Oracle, feed: Mapping[str, Any], want: list[np.ndarray]) -> None:
        self.want = want
        self._oracle, self._feed = oracle, feed
        self._moved: list[Any] = [np.zeros(w.shape) for w in want]
        self._samples = 0

    def unexplained(self, number: int, got: np.ndarray) -> Any:
        """Which elements of an output are farther off than random errors move them."""
        far = ~_is_near(got, self.want[number], self._spread(number))
        while np.any(far) and self._samples < _SAMPLES:
            self._sample()
            far = ~_is_near(got, self.want[number], self._spread(number))
        return far

    def _spread(self, number: int) -> Any:
        """How far random errors move each element, and its neighbours on average."""
        moved = self._moved[number]
        return moved + np.mean(moved) if np.size(moved) else moved

    def _sample(self) -> None:
        results = self._oracle.run(self._feed, noise=Noise(self._samples))
        for number, (moved, want) in enumerate(zip(results, self.want, strict=True)):
            if moved.shape == want.shape and moved.dtype.kind == "f":
                off = np.nan_to_num(np.abs(moved - want))
                self._moved[number] = np.maximum(self._moved[number], off)
        self._samples += 1


def _compare(model: onnx.ModelProto, got: list[np.ndarray], yardstick: _Yardstick) -> str:
    outputs = zip(got, yardstick.want, model.graph.output, strict=True)
    for number, (mine, theirs, output) in enumerate(outputs):
        declared = _declared(output)
        where = f"output {number} ({output.name})"
        if mine.dtype != declared:
            return f"{where} is {mine.dtype}, not {declared}"
        if mine.shape != theirs.shape:
            return f"{where} has the shape {mine.shape}, not {theirs.shape}"
        is_float = mine.dtype.kind == "f"
        bad = yardstick.unexplained(number, mine) if is_float else mine != theirs
        if np.any(bad):
            return f"{where} differs: {_first(mine, theirs, bad)}"
    return ""


def _declared(output: onnx.ValueInfoProto) -> Any:
    return onnx.helper.tensor_dtype_to_np_dtype(output.type.tensor_type.elem_type)


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


def _first(mine: np.ndarray, theirs: np.ndarray, bad: Any) -> str:
    at = tuple(int(k) for k in np.argwhere(bad)[0]) if np.ndim(bad) else ()
    return f"{int(np.sum(bad))} of {mine.size}, at {at} {mine[at]!r}, not {theirs[at]!r}"
