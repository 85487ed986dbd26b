"""Every input a constant: whatever folds a model gives what the model gives with feeds.

python -m tests.hostile.constants                     # all of ONNX's own cases, at every level
python -m tests.hostile.constants --first 3 --step 40 # every 40th, from the third on

What is raised without feeds but not with them is a defect, and so is another value.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

import sardonyx
from tests.conformance.cases import Case, all_cases
from tests.conformance.judge import agrees, is_random

LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL")


def as_constants(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> onnx.ModelProto:
    """The model with its feeds as initializers; those that are no tensors stay inputs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    given = {name: x for name, x in feeds.items() if isinstance(x, np.ndarray)}
    inputs = [i for i in made.graph.input if i.name not in given]
    del made.graph.input[:]
    made.graph.input.extend(inputs)
    made.graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in given.items())
    return made


def folded(model: onnx.ModelProto, feeds: Mapping[str, Any], level: str) -> list[Any]:
    """What the model gives when its tensors are constants."""
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = getattr(sardonyx.GraphOptimizationLevel, level)
    data = as_constants(model, feeds).SerializeToString()
    rest = {name: x for name, x in feeds.items() if not isinstance(x, np.ndarray)}
    return list(sardonyx.InferenceSession(data, options).run(None, rest))


def _step(found: Any) -> float:
    """The distance of numbers beside 1 in the type of an output."""
    dtype = getattr(found, "dtype", np.dtype(int))
    try:
        return float(ml_dtypes.finfo(dtype).eps)
    except ValueError:  # no floats
        return 0.0


def defects(case: Case, levels: tuple[str, ...] = LEVELS) -> Iterator[str]:
    """What is wrong with a case whose inputs are constants, at each level."""
    feeds = case.feeds(case.runs[0][0])
    try:
        wanted = sardonyx.InferenceSession(case.model.SerializeToString()).run(None, feeds)
    except Exception:  # noqa: BLE001 - conformance tests say what does not run
        return
    for level in levels:
        try:
            found = folded(case.model, feeds, level)
        except Exception as error:  # noqa: BLE001 - whatever is raised is the defect
            yield f"{case.name} {level}: {type(error).__name__}: {error}"
            continue
        step = max((_step(y) for y in wanted), default=0.0)
        # Each may be nearer to what the case expects than they are to each other.
        allowed = max(2 * case.relative, 4 * step), max(2 * case.absolute, 4 * step)
        if not is_random(case.name) and not agrees(found, list(wanted), *allowed):
            yield f"{case.name} {level}: another value"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.constants")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--step", type=int, default=1)
    options = parser.parse_args()
    start, cases, found = time.monotonic(), all_cases()[options.first :: options.step], 0
    for case in cases:
        for defect in defects(case):
            found += 1
            sys.stdout.write(f"DEFECT {defect}\n")
            sys.stdout.flush()
    seconds = time.monotonic() - start
    sys.stdout.write(f"{len(cases)} cases in {seconds:.0f} s, {found} defects\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
