"""A case in two sessions, fused and unfused, at all its shapes, against the oracle.

What no rounding touches must be the same. Other floats may be some roundings off, and besides as
far as random rounding errors move the oracle's own results, times a factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import sardonyx
from tests.operator_fuzz.case import Case
from tests.operator_fuzz.draw import STRING, is_wide_float
from tests.operator_fuzz.oracle import epsilon

#: Roundings by which a float may be off without a closer look.
_NEAR = 8
_SAMPLES = 4
_TINY = {"float16": 6e-8, "bfloat16": 1e-38, "float32": 1e-38, "float64": 1e-300}
_LARGEST = {"float16": 65504.0, "bfloat16": 3.3e38, "float32": 3.4e38, "float64": 1.79e308}


def difference(case: Case, threads: int = 1) -> str:
    """The first difference, in words; empty if there is none."""
    for kind in ("fused", "unfused"):
        try:
            session = session_of(case, kind, threads)
        except Exception as error:
            return f"{kind} session: {type(error).__name__}: {error}"
        names = [o.name for o in case.model.graph.output]
        for run, feed in enumerate(case.feeds):
            try:
                got = session.run(None, dict(feed))
            except Exception as error:
                return f"{kind} run {run}: {type(error).__name__}: {error}"
            for name, mine in zip(names, got, strict=True):
                found = _differs(case, run, name, mine)
                if found:
                    return f"{kind} run {run}: {name} {found}"
    return ""


def session_of(case: Case, kind: str, threads: int) -> sardonyx.InferenceSession:
    """A session of the case's model."""
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if kind == "unfused":
        level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
    return sardonyx.InferenceSession(case.model.SerializeToString(), options)


def _differs(case: Case, run: int, name: str, mine: Any) -> str:
    theirs, dtype = case.wanted[run][name], case.types[name]

    def noisy(pick: Callable[[Any], Any]) -> list[Any]:
        return [pick(case.noisy(run, sample)[name]) for sample in range(_SAMPLES)]

    factor = max(step.maker.factor for step in case.steps)
    absolute = max(step.maker.absolute for step in case.steps)
    read = [case.types[n] for s in case.steps if s.maker.coarse for n in s.node.input if n]
    coarsest = max(map(epsilon, read), default=0.0)
    return differs(mine, theirs, dtype, noisy, name in case.exact, factor, absolute, coarsest)


def differs(
    mine: Any,
    theirs: Any,
    dtype: Any,
    noisy: Callable[[Callable[[Any], Any]], list[Any]],
    exact: bool,
    factor: float,
    absolute: float,
    coarsest: float = 0.0,
) -> str:
    """How a value differs from the oracle's; empty if it does not."""
    if isinstance(theirs, list):
        if not isinstance(mine, list) or len(mine) != len(theirs):
            return f"is {mine!r}, not {theirs!r}"
        for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            kind = a.dtype if isinstance(a, np.ndarray) else dtype
            found = differs(
                a, b, kind, lambda pick, k=k: noisy(lambda v: pick(v[k])), exact, factor, absolute
            )
            if found:
                return f"item {k} {found}"
        return ""
    if isinstance(theirs, dict):
        if not isinstance(mine, dict) or list(mine) != list(theirs):
            return f"is {mine!r}, not {theirs!r}"
        near = [mine[k] == v or abs(mine[k] - v) <= 1e-5 * (1 + abs(v)) for k, v in theirs.items()]
        return "" if all(near) else f"is {mine!r}, not {theirs!r}"
    if theirs is None or mine is None:
        return "" if theirs is None and mine is None else f"is {mine!r}, not {theirs!r}"
    theirs = np.asarray(theirs)
    if not isinstance(mine, np.ndarray):
        return f"is {mine!r}, not {theirs!r}"
    if mine.dtype != dtype and not (dtype == STRING and mine.dtype.kind in "UO"):
        return f"is {mine.dtype}, not {dtype}"
    if mine.shape != theirs.shape:
        return f"has the shape {mine.shape}, not {theirs.shape}"
    if not mine.size:
        return ""
    width = max(epsilon(mine.dtype), coarsest)
    if not epsilon(mine.dtype):
        with np.errstate(all="ignore"):
            bad = _codes(mine) != _codes(theirs)
    else:
        a, b = _wide(mine), _wide(theirs)
        if exact:
            bad = ~((a == b) | (np.isnan(a) & np.isnan(b)))
        else:
            bad = ~_near(a, b, mine.dtype.name, width, 0.0)
            if np.any(bad):
                spread = _spread(b, noisy(_wide), factor)
                finite = np.abs(b[np.isfinite(b)])
                spread = spread + absolute * width * max(finite.max(initial=0.0), 1.0)
                bad = ~_near(a, b, mine.dtype.name, width, spread)
    if not np.any(bad):
        return ""
    at = tuple(int(k) for k in np.argwhere(bad)[0])[: mine.ndim] if np.ndim(bad) else ()
    return f"differs in {int(np.sum(bad))} of {mine.size}, at {at} {mine[at]!r}, not {theirs[at]!r}"


def _codes(array: np.ndarray) -> np.ndarray:
    if array.dtype == STRING or array.dtype.kind in "UO":
        return array.astype(object)
    if array.dtype.kind in "iub":
        return array
    wide = array.astype(np.float32)
    return np.where(np.isnan(wide), np.float32(12345.678), wide)


def _wide(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind == "c":
        return (
            np.stack([array.real, array.imag])
            .astype(np.float64)
            .transpose(*range(1, array.ndim + 1), 0)
        )
    return array.astype(np.float64) if is_wide_float(array.dtype) else array


def _near(mine: Any, theirs: Any, name: str, width: float, spread: Any) -> Any:
    name = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    with np.errstate(all="ignore"):
        size = np.abs(theirs)
        allowed = _NEAR * width * size + spread + _TINY[name]
        near = (np.abs(mine - theirs) <= allowed) | (mine == theirs)
        near |= np.isnan(mine) & np.isnan(theirs)
        return near | (
            np.isinf(mine)
            & (size * (1 + 8 * width) > _LARGEST[name])
            & (np.sign(mine) == np.sign(theirs))
        )


def _spread(theirs: Any, moved: list[Any], factor: float) -> Any:
    found = np.zeros(theirs.shape)
    for other in moved:
        if other.shape == theirs.shape:
            with np.errstate(all="ignore"):
                found = np.maximum(found, np.nan_to_num(np.abs(other - theirs), posinf=0))
    return factor * (found + np.mean(found) * 0.25)
