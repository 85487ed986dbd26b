"""Whether what a session gives is what a case expects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import sardonyx
from tests.conformance.cases import Case, plain

#: A name, with options or without.
Provider: TypeAlias = str | tuple[str, dict[str, Any]]


class Outcome(NamedTuple):
    """What became of a case.

    Attributes:
        problem: What is wrong; nothing if it passes.
        provider: The one that ran it.
    """

    problem: str
    provider: str = ""


def outcome(case: Case, provider: Provider) -> Outcome:
    """What becomes of a case on a provider."""
    where = ""
    try:
        session = sardonyx.InferenceSession(case.model.SerializeToString(), providers=[provider])
        where = session.get_providers()[0]
        for inputs, wanted in case.runs:
            found = session.run(None, case.feeds(inputs))
            if is_random(case.name):
                good = _draw_agrees(case.name, inputs, found, wanted)
            else:
                good = agrees(list(found), list(wanted), case.relative, case.absolute)
            if not good:
                return Outcome(f"outputs differ: {_largest(found, wanted)}", where)
    except Exception as error:  # noqa: BLE001 - whatever is raised is the outcome
        return Outcome(f"{type(error).__name__}: {error}", where)
    return Outcome("", where)


def agrees(found: Any, wanted: Any, relative: float, absolute: float) -> bool:
    """Equal in kind, type, shape, and in value within the tolerances."""
    if wanted is None or found is None:
        return wanted is found
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(found, (list, tuple))
            and len(found) == len(wanted)
            and all(agrees(f, w, relative, absolute) for f, w in zip(found, wanted, strict=True))
        )
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict)
            and found.keys() == wanted.keys()
            and all(agrees(found[k], wanted[k], relative, absolute) for k in wanted)
        )
    found, wanted = np.asarray(plain(found)), np.asarray(wanted)
    if found.shape != wanted.shape:
        return False
    if wanted.dtype.kind in "OUS":
        return bool((found.astype(str) == wanted.astype(str)).all())
    return found.dtype == wanted.dtype and np.allclose(
        _wide(found), _wide(wanted), rtol=relative, atol=absolute, equal_nan=True
    )


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _largest(found: Sequence[Any], wanted: Sequence[Any]) -> str:
    try:
        pairs = zip(found, wanted, strict=True)
        return ", ".join(str(np.abs(_wide(f) - _wide(w)).max()) for f, w in pairs)
    except (AttributeError, TypeError, ValueError):
        return "not in numbers"


def is_random(name: str) -> bool:
    """Whether a case's outputs depend on a draw."""
    return "bernoulli" in name or ("training_dropout" in name and "zero_ratio" not in name)


def _draw_agrees(
    name: str, inputs: Sequence[Any], found: Sequence[Any], wanted: Sequence[Any]
) -> bool:
    """Types and shapes, values that may be, and as many of each kind as is likely."""
    if [(f.dtype, f.shape) for f in found] != [(w.dtype, w.shape) for w in wanted]:
        return False
    value = found[0].astype(np.float64)
    if "bernoulli" in name:
        chance, drawn = np.asarray(inputs[0], np.float64), value
        legal = np.isin(value, (0.0, 1.0)).all()
    else:
        ratio = float(inputs[1]) if len(inputs) > 1 else 0.5
        drawn = (value != 0).astype(np.float64)
        kept = np.asarray(inputs[0], np.float64) / (1 - ratio)
        legal = np.allclose(value, kept * drawn, rtol=1e-3)
        legal &= len(found) < 2 or np.array_equal(found[1].astype(bool), drawn.astype(bool))
        chance = np.full(value.shape, 1 - ratio)
    deviation = np.sqrt((chance * (1 - chance)).sum()) + 1e-9
    return bool(legal) and abs((drawn - chance).sum()) <= 5 * deviation


def nearer_than_expected(case: Case, model: onnx.ModelProto, provider: Provider) -> bool:
    """Whether results that differ from what a case expects are nearer to the exact ones.

    Args:
        case: The case.
        model: One node that computes the same, which onnx evaluates in float64.
        provider: What gives the results.
    """
    session = sardonyx.InferenceSession(case.model.SerializeToString(), providers=[provider])
    for inputs, wanted in case.runs:
        feeds = case.feeds(inputs)
        wide = {k: x.astype(np.float64) if _is_float(x) else x for k, x in feeds.items()}
        exact = ReferenceEvaluator(model).run(None, wide)
        for found, expected, true in zip(session.run(None, feeds), wanted, exact, strict=True):
            far = np.abs(_wide(found) - _wide(expected))
            differ = far > case.absolute + case.relative * np.abs(_wide(expected))
            mine, theirs = (np.abs(_wide(y) - true)[differ] for y in (found, expected))
            if differ.any() and (mine.max() > theirs.max() or mine.mean() > theirs.mean()):
                return False
    return True


def _is_float(x: np.ndarray) -> bool:
    return x.dtype.kind == "f" or x.dtype.name == "bfloat16"
