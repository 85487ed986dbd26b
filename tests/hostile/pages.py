"""Operators whose feeds and results lie at the ends of memory, with numbers that nobody expects.

python -m tests.hostile.pages --seconds 3600      # until then; defects are printed with seeds
python -m tests.hostile.pages --seed 17           # one case again, in this process

A case is an operator's: of the operator fuzzer, of ONNX, or of those whose numbers have ranges.
Some of its inputs become constants; numbers in one or two of its feeds and constants become others
(the largest, the least, NaN, infinities, what is no index). A run gives values, or an error that
says what is wrong; it reads and writes nothing outside of its arrays, and the session goes on: with
the case's own feeds it gives what it gave before. What crashes or hangs does so in a process of
its own.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import ml_dtypes
import numpy as np
import onnx

import sardonyx
from sardonyx.base.errors import EngineError, OutOfMemory, SardonyxError
from tests.hostile.children import run_cases
from tests.hostile.constants import as_constants
from tests.support.guarded import guarded, room

Feeds = dict[str, Any]
#: Loops of 2^31 iterations are right, and take long.
_RUN_SECONDS = 10.0
#: Results of more bytes are not compared: there may be no memory for it.
_MOST_COMPARED_BYTES = 1 << 28
#: Operators that draw numbers: no two runs give the same.
_RANDOM = re.compile(rb"Random|Bernoulli|Multinomial|Dropout")


@cache
def _onnx_cases() -> list[Any]:
    from tests.conformance.cases import all_cases

    return [c for c in all_cases() if c.runs and len(c.model.graph.node) < 40]


def _of_onnx(rnd: random.Random) -> tuple[onnx.ModelProto, Feeds]:
    case = rnd.choice(_onnx_cases())
    return case.model, case.feeds(case.runs[0][0])


def _of_fuzzer(rnd: random.Random) -> tuple[onnx.ModelProto, Feeds] | None:
    from tests.operator_fuzz.case import InvalidCase, make

    try:
        case = make(rnd.randrange(10**6), bare=rnd.random() < 0.7)
    except InvalidCase:
        return None
    return case.model, dict(rnd.choice(case.feeds))


def _of_ranges(rnd: random.Random) -> tuple[onnx.ModelProto, Feeds]:
    from tests.ops.core.test_ranges import CASES

    case = CASES[rnd.choice(sorted(CASES))]
    return onnx.load_from_string(case.model()), dict(case.feeds)


_QUICK: list[Callable[[random.Random], Any]] = [_of_fuzzer, _of_fuzzer, _of_ranges]
_SOURCES = [*_QUICK, _of_onnx]


def strange(dtype: np.dtype[Any], rnd: random.Random) -> Any:
    """A number of a type that programs forget."""
    if dtype.kind == "b":
        return rnd.random() < 0.5
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        near = (0, 1, -1, 2, 7, 255, 2**31 - 1, -(2**31), int(ends.max), int(ends.min))
        return min(max(rnd.choice(near), int(ends.min)), int(ends.max))
    try:
        largest = float(ml_dtypes.finfo(dtype).max)
    except ValueError:  # integers of ml_dtypes
        return rnd.choice((0, 1, 7, -8, -1))
    numbers = (0.0, -0.0, 1.0, -1.0, 1e30, largest, -largest, np.nan, np.inf, -np.inf, 0.5, 1e-40)
    return rnd.choice(numbers)


def mutated(x: Any, rnd: random.Random) -> Any:
    """An array with one number, several, or all of them replaced."""
    if not isinstance(x, np.ndarray) or not x.size or x.dtype.kind in "OSUMc":
        return x
    found = x.copy()
    flat, how = found.reshape(-1), rnd.random()
    places = (
        range(x.size) if how < 0.2 else rnd.sample(range(x.size), min(x.size, 1 + rnd.randrange(3)))
    )
    number = strange(x.dtype, rnd)
    with np.errstate(all="ignore"):
        for place in places:
            flat[place] = number if how < 0.5 else strange(x.dtype, rnd)
    return found


def run_case(seed: int, *, with_onnx: bool = True) -> tuple[str, str]:
    """What became of the case, and the defect; none if that is empty.

    Args:
        seed: Of the case.
        with_onnx: Whether it may be one of ONNX's own: making those takes seconds.
    """
    rnd = random.Random(seed)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = rnd.choice(_SOURCES if with_onnx else _QUICK)(rnd)
        if found is None:
            return "no case", ""
        model, feeds = found
        try:
            return _tried(model, feeds, rnd)
        except SardonyxError as error:
            if isinstance(error, EngineError):
                return "defect", traceback.format_exc()
            return f"refused {type(error).__name__}", ""
        except Exception:  # noqa: BLE001 - whatever else is raised is the defect
            return "defect", traceback.format_exc()


def _tried(model: onnx.ModelProto, own: Feeds, rnd: random.Random) -> tuple[str, str]:
    arrays = [n for n, x in own.items() if isinstance(x, np.ndarray)]
    fixed = [n for n in arrays if rnd.random() < 0.3]
    targets = set(rnd.sample(arrays, min(len(arrays), 1 + rnd.randrange(2))))
    given = {n: mutated(x, rnd) if n in targets else x for n, x in own.items()}
    options = sardonyx.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = rnd.choice((1, 1, 2))
    if rnd.random() < 0.3:
        options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = as_constants(model, {n: given[n] for n in fixed}).SerializeToString()
    session = sardonyx.InferenceSession(data, options)
    plain = {n: x for n, x in own.items() if n not in fixed}
    before = _outcome(session, plain)
    at_end = rnd.random() < 0.7
    strange_ = {n: guarded(given[n], at_end=at_end) for n in plain}
    results = _outcome(session, strange_)
    what = "ran"
    if isinstance(results, SardonyxError):
        what = f"refused {type(results).__name__}"
    else:
        rooms = [
            room(y.shape, y.dtype, at_end=at_end)
            if isinstance(y, np.ndarray) and y.dtype.kind not in "OSU" else None
            for y in results
        ]  # fmt: skip
        again = _outcome(session, strange_, rooms)
        if isinstance(again, OutOfMemory):
            return what, ""
        is_other = isinstance(again, SardonyxError) or not all(map(_same, results, again))
        if is_other and not _RANDOM.search(data):
            return what, f"RESULTS IN GIVEN MEMORY: {results} {again}"
    after = _outcome(session, plain)
    if isinstance(before, OutOfMemory) or isinstance(after, OutOfMemory):
        pass  # other results have the memory
    elif isinstance(before, SardonyxError) or isinstance(after, SardonyxError):
        if type(before) is not type(after):
            return what, f"THE SESSION WENT BAD: {before} {after}"
    elif not _RANDOM.search(data) and not all(map(_same, before, after)):
        return what, f"THE SESSION WENT BAD: {before} {after}"
    return what, ""


def _outcome(session: Any, feeds: Feeds, out: Any = None) -> Any:
    """Results of a run, or the error."""
    try:
        return session.run(None, feeds, out=out, timeout=_RUN_SECONDS)
    except EngineError:
        raise
    except SardonyxError as error:
        return error


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype.kind in "OSU":
            return a.shape == b.shape and bool((a == b).all())
        if a.dtype != b.dtype or a.shape != b.shape or a.nbytes > _MOST_COMPARED_BYTES:
            return a.dtype == b.dtype and a.shape == b.shape
        return a.tobytes() == b.tobytes()
    return True  # lists and tables lie in no memory that is given


def campaign(
    seeds: range, seconds: float, say: Callable[[str], None], *, with_onnx: bool = True
) -> Counter[str]:
    """Cases in processes of their own; how many had which outcome."""
    from tests.operator_fuzz.case import records

    records()  # imported once, before the processes part
    if with_onnx:
        _onnx_cases()
    return run_cases(partial(run_case, with_onnx=with_onnx), seeds, seconds, say)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.pages")
    parser.add_argument("--seed", type=int, help="one case, in this process")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=10**9, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=60.0, help="stop after so long")
    options = parser.parse_args()
    if options.seed is not None:
        what, defect = run_case(options.seed)
        sys.stdout.write(f"{what}\n{defect}\n")
        return 1 if defect else 0
    os.environ["SARDONYX_CACHE"] = "off"
    os.environ.setdefault("SARDONYX_COMPILE_PROCESSES", "1")

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    tally = campaign(range(options.first, options.first + options.count), options.seconds, say)
    say(f"{sum(tally.values())} cases from seed {options.first}: {dict(tally.most_common())}")
    return 1 if tally["defect"] else 0


if __name__ == "__main__":
    sys.exit(main())
