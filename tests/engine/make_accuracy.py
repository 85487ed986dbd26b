"""Writes docs/accuracy.md: `python -m tests.engine.make_accuracy` (some minutes)."""

from __future__ import annotations

import pathlib

from tests.support.accuracy import ROWS, Worst, measure

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "accuracy.md"
#: A float of so many, for each type.
STEPS = {"float": 521, "float16": 1}
#: Largest errors in ulp.
LIMITS = {"float": 4.0, "float16": 1.0}
_MILLIONS = (1 << 32) / STEPS["float"] / 1e6
_HEAD = f"""# Accuracy of elementwise operators

Written by `python -m tests.engine.make_accuracy`; `tests/engine/test_accuracy.py` holds every
operator to {LIMITS["float"]:g} ulp in float32, {LIMITS["float16"]:g} in float16 on a coarser sweep.

The figures are distances between what a session computes and the exact result (in longdouble). They
are in units of the last place of the result (ulp). Each is the largest over one in {STEPS["float"]}
of all float32 in the order of their bits ({_MILLIONS:.1f} million), and over all float16. 0.5 is
correctly rounded. Operators of two inputs get as second one anything, or a number between -30 and
30.

The standard defines some operators by a formula whose steps are tensors of the input's type.
There a step's rounding may be made larger by what follows. The last column names that step. *Of
the formula* is the error in units of its last place, which is what is held to the limit. Errors
in the result's own last place are large there only where the result is far smaller than the step.

| operator | float32 | at | of the formula | float16 | of the formula | the step |
|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Measure and write."""
    lines = []
    for row in ROWS:
        single, half = (measure(row, name, step) for name, step in STEPS.items())
        where = ", ".join(f"{x:.6g}" for x in single.where)
        formula = [_figure(w.allowed) if row.why else "" for w in (single, half)]
        cells = [str(row), _of(single), where, formula[0], _of(half), formula[1], row.why]
        lines.append(f"| {' | '.join(cells)} |\n")
    PAGE.write_text(_HEAD + "".join(lines))


def _of(worst: Worst) -> str:
    return _figure(worst.ulp)


def _figure(error: float) -> str:
    error = max(error, 0.5)  # equal to the exact result once that is rounded
    return f"{error:.2f}" if error < 100 else f"{error:.1e}"


if __name__ == "__main__":
    main()
