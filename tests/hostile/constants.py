"""Operators whose inputs are all constants: what compiling folds must be what a run computes.

Every case of an operator that the `onnx` package has, with its feeds as initializers, at several
levels of optimisation: the session is made, and its results are those of the model that is fed.
Where only inputs that a run brings can serve (sequences, optionals), a case is left out.

`python -m tests.hostile.constants [--only WORD] [--shard K/N]` goes through all of them;
`pytest -p tests.hostile.constants tests/ops` does the same for each first run of a session there.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import sardonyx
from sardonyx.base.errors import SardonyxError

#: ORT_DISABLE_ALL, ORT_ENABLE_BASIC, ORT_ENABLE_ALL
LEVELS = (0, 1, 99)
#: What draws numbers, or says so itself.
_RANDOM = ("bernoulli", "dropout", "random", "multinomial")


def all_constant(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with its feeds as initializers, and without inputs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.input[:]
    made.graph.initializer.extend(numpy_helper.from_array(x, name) for name, x in feeds.items())
    made.ir_version = max(made.ir_version, 4)
    return made


def session(model: onnx.ModelProto, level: int) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel(level)
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def same(found: Any, expected: Any) -> bool:
    """Whether results agree, but for the rounding of another order of sums."""
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    if not isinstance(expected, np.ndarray):
        return bool(found == expected or (found is None and expected is None))
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    if expected.dtype.kind in "OSUb" or expected.dtype.kind in "iu":
        return bool(np.array_equal(found, expected))
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    step = 2e-2 if expected.dtype.itemsize <= 2 else 1e-4
    return bool(
        np.allclose(found.astype(wide), expected.astype(wide), rtol=step, atol=step, equal_nan=True)
    )


def faults(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], expected: Sequence[Any]
) -> Iterator[str]:
    """What is wrong with the model of constants, one line for each level."""
    constant = all_constant(model, feeds)
    for level in LEVELS:
        try:
            found = session(constant, level).run(None, {})
        except Exception as error:
            yield f"level {level}: {type(error).__name__}: {error}"
            continue
        if not same(found, expected):
            yield f"level {level}: other values"


def cases() -> Iterator[tuple[str, onnx.ModelProto, dict[str, np.ndarray]]]:
    """Name, model and feeds of each case of the `onnx` package whose inputs are all arrays."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    for case in found:
        if case.model is None or not case.data_sets or any(w in case.name for w in _RANDOM):
            continue
        inputs = case.data_sets[0][0]
        feeds = {}
        for value, x in zip(case.model.graph.input, inputs, strict=False):
            feeds[value.name] = numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x
        if feeds and all(isinstance(x, np.ndarray) for x in feeds.values()):
            yield case.name, case.model, feeds


def checked(name: str, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[str]:
    """The faults of one case; none where the model itself is refused."""
    try:
        expected = session(model, 99).run(None, feeds)
    except SardonyxError as error:
        return [f"{name}: fed: {error}"] if type(error).__name__ == "EngineError" else []
    return [f"{name}: {text}" for text in faults(model, feeds, expected)]


def pytest_configure(config: Any) -> None:
    """Check the constant form of each first run of a session, and fail the test that made it."""
    run = sardonyx.InferenceSession.run
    busy: list[bool] = []

    def watched(self: Any, names: Any, feeds: Any = None, *rest: Any, **more: Any) -> Any:
        results = run(self, names, feeds, *rest, **more)
        if busy or names or not feeds or getattr(self, "_was_checked", False):
            return results
        if not isinstance(self._source, bytes) or not all(
            isinstance(x, np.ndarray) for x in feeds.values()
        ):
            return results
        busy.append(True)
        try:
            self._was_checked = True
            found = list(faults(onnx.load_from_string(self._source), feeds, results))
            assert not found, "\n".join(found)
        finally:
            busy.clear()
        return results

    sardonyx.InferenceSession.run = watched  # type: ignore[method-assign]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--shard", default="0/1", help="K/N: every Nth case, from the Kth on")
    arguments = parser.parse_args()
    first, step = map(int, arguments.shard.split("/"))
    count, defects = 0, 0
    for k, (name, model, feeds) in enumerate(cases()):
        if arguments.only not in name or k % step != first:
            continue
        count += 1
        for text in checked(name, model, feeds):
            defects += 1
            print(text, flush=True)
    print(f"{count} cases, {defects} defects")
    return bool(defects)


if __name__ == "__main__":
    sys.exit(main())
