"""How products are asked for of cuBLASLt: layouts, batches, bias, residual, algorithms."""

from __future__ import annotations

import gc
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sardonyx.api.inspection import inspect_engine
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.libraries import background, cublaslt_products
from sardonyx.cuda.libraries import cublaslt as module
from sardonyx.cuda.libraries.libraries import Libraries, LibrarySettings
from sardonyx.cuda.run.bound_runs import BoundRuns
from sardonyx.cuda.run.launching import Launches
from sardonyx.plan.plan import Command
from sardonyx.runtime.engine import Engine
from sardonyx.store.cache import Cache
from tests.cuda.test_accelerate import CASES, _feeds
from tests.support.fake_cublaslt import CublasLt
from tests.support.fake_provider import FakeProvider, installed
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_PRODUCTS = [name for name, case in CASES.items() if "matmul" in case[3]]
_TEXT = "g (float[N,M] x, float[M,K] w) => (float[N,K] y) { y = MatMul(x, w) }"


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CublasLt]:
    """The library with a cache of the test's own: algorithms of another test have other times."""
    cache = Cache(tmp_path, 10**9)
    monkeypatch.setattr(module, "default_cache", lambda: cache)
    with installed() as driver:
        package, bindings = types.ModuleType("nvmath.bindings"), CublasLt(driver)
        package.cublasLt = bindings  # type: ignore[attr-defined]  # it has what the package has
        monkeypatch.setitem(sys.modules, "nvmath", types.ModuleType("nvmath"))
        monkeypatch.setitem(sys.modules, "nvmath.bindings", package)
        yield bindings


def _library(**options: Any) -> module.CublasLt:
    return module.CublasLt(Device(0), LibrarySettings(**options))


def _engines(
    bindings: CublasLt, text: str, weights: Any, library: module.CublasLt | None = None
) -> tuple[Engine, Engine]:
    libraries = Libraries({"matmul": library or _library()})
    provider: Any = FakeProvider(bindings.driver, libraries=libraries)
    model = model_of(text, weights, opset=17).SerializeToString()
    return (
        create_engine(model, EngineOptions(provider=provider, use_cache=False)),
        # Many tests compare with the same one: it is compiled once.
        create_engine(model, EngineOptions()),
    )


def _undone(there: Engine) -> frozenset[int]:
    return inspect_engine(there).libraries.undone


@pytest.mark.parametrize("name", _PRODUCTS)
def test_equals_what_kernels_compute(bindings: CublasLt, name: str) -> None:
    there, here = _engines(bindings, *CASES[name][:2])
    like = "half: some roundings" if "half" in name else "float: sums"
    for _ in range(3):
        feeds = _feeds(CASES[name][0], CASES[name][2])
        found, expected = there.run(feeds)[0], here.run(feeds)[0]
        assert_near(found, expected, like)
    assert bindings.products
    assert not _undone(there)


@pytest.mark.parametrize(
    "shape", [(1, 7, 1), (1, 1, 5), (6, 1, 1), (6, 1, 4), (6, 3, 1), (0, 4, 3), (3, 0, 2)]
)
def test_sizes_of_one_and_none(bindings: CublasLt, shape: tuple[int, int, int]) -> None:
    there, here = _engines(bindings, _TEXT, {})
    m, k, n = shape
    x, w = np.ones((m, k), np.float32), np.full((k, n), 2, np.float32)
    for _ in range(2):
        assert there.run([x, w])[0].tolist() == here.run([x, w])[0].tolist()
    assert bool(bindings.products) == (0 not in shape)


@pytest.mark.parametrize(
    ("dtype", "options", "compute"),
    [
        ("float", {}, 77), ("float", {"tf32": False}, 68), ("double", {}, 70), ("float16", {}, 68),
    ],
)  # fmt: skip
def test_sums_are_rounded_as_the_option_says(
    bindings: CublasLt, dtype: str, options: dict[str, Any], compute: int
) -> None:
    there, _ = _engines(bindings, _TEXT.replace("float", dtype), {}, _library(**options))
    kind = {"float": np.float32, "double": np.float64, "float16": np.float16}[dtype]
    there.run([np.ones((4, 4), kind)] * 2)
    assert [x["compute"] for x in bindings.held.values() if "compute" in x] == [compute]


def test_without_an_algorithm_the_kernel_does_it(bindings: CublasLt) -> None:
    bindings.knows_any = False
    there, _ = _engines(bindings, _TEXT, {})
    x = np.ones((4, 4), np.float32)
    assert there.run([x, x])[0].tolist() == (x @ x).tolist()
    assert not bindings.products
    gc.collect()
    assert bindings.held == {}
    assert "0 of 1 calls" in "\n".join(there.executable.report().remarks)


def test_shapes_are_bounded_and_descriptors_destroyed(
    bindings: CublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_SHAPES", 3)
    there, _ = _engines(bindings, _TEXT, {})
    for size in range(1, 12):
        x = np.ones((size, size), np.float32)
        assert there.run([x, x])[0].tolist() == (x @ x).tolist()
    gc.collect()
    assert len(bindings.held) <= 3 * 4


# -- trials that no run waits for -----------------------------------------------------------------

_FOUR = (
    "g (float[N,12] x) => (float[N,12] y)"
    " { a = MatMul(x, w) b = Add(a, x) c = MatMul(b, w) y = MatMul(c, v) }"
)


def _no_longer_pending(library: Any) -> None:
    deadline = time.monotonic() + 30
    while library.pending and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not library.pending


@pytest.mark.parametrize("broken", ["", "idle", "wrong"])
@pytest.mark.parametrize("seconds", [0, 1e-9])
def test_a_first_run_waits_for_few_trials(
    bindings: CublasLt, monkeypatch: pytest.MonkeyPatch, seconds: float, broken: str
) -> None:
    monkeypatch.setattr(module, "_TRIED_SECONDS", seconds)
    monkeypatch.setattr(module, "_ROW_SECONDS", 1e9)
    monkeypatch.setattr(background, "_PATIENCE_SECONDS", 30)
    if broken:
        getattr(bindings, broken).add(0)
    weights = {n: np.eye(12, dtype=np.float32) * f for n, f in (("w", 2), ("v", 3))}
    library = _library()
    there, _ = _engines(bindings, _FOUR, weights, library)
    library._tried = time.monotonic()
    x = np.arange(24, dtype=np.float32).reshape(2, 12)
    done = 1 if seconds and not broken else 0  # the first one used up what there was
    for turn in range(4):
        assert there.run([x])[0].tolist() == (18 * x).tolist()
        if turn == 0:
            assert len(_undone(there)) == 3 - done
            _no_longer_pending(library)
            assert library.version == 1  # once, however many they are
    assert len(_undone(there)) == (3 if broken else 0)


def test_what_fails_in_the_background_is_left_to_the_kernel(
    bindings: CublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> bool:
        raise OSError("no room for an entry of the cache")

    monkeypatch.setattr(module, "_TRIED_SECONDS", 0)
    monkeypatch.setattr(module.CublasLt, "_prepare", fail)
    library = _library()
    there, _ = _engines(bindings, _TEXT, {}, library)
    for size in (3, 4):  # the thread goes on
        x = np.eye(size, dtype=np.float32)
        assert there.run([x, x])[0].tolist() == x.tolist()
        _no_longer_pending(library)
    assert _undone(there)


def test_trials_begin_when_a_first_run_is_over(
    bindings: CublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TRIED_SECONDS", 0)
    monkeypatch.setattr(background, "_PATIENCE_SECONDS", 30)
    library = _library()
    there, _ = _engines(bindings, _TEXT, {}, library)
    finish, seen = BoundRuns.finish, list[int]()

    def slowly(*arguments: Any) -> None:
        time.sleep(0.1)
        seen.append(library.pending)
        finish(*arguments)

    monkeypatch.setattr(BoundRuns, "finish", slowly)
    x = np.eye(4, dtype=np.float32)
    there.run([x, x])
    assert seen == [1]
    _no_longer_pending(library)


def test_a_pause_between_runs_is_time_for_trials(
    bindings: CublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TRIED_SECONDS", 1e-9)
    monkeypatch.setattr(module, "_ROW_SECONDS", 0.02)
    there, _ = _engines(bindings, _TEXT, {})
    for size in (3, 4, 5):
        time.sleep(0.05)
        x = np.eye(size, dtype=np.float32)
        there.run([x, x])
        assert not _undone(there)


def test_no_run_waits_for_the_compiler_of_kernels(
    bindings: CublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TRIED_SECONDS", 0)
    weights = {n: np.eye(12, dtype=np.float32) for n in ("w", "v")}
    there, _ = _engines(bindings, _FOUR, weights)
    commands = inspect_engine(there).plan.commands
    calls = [n for n, c in enumerate(commands) if isinstance(c, Command) and c.library is not None]
    first, *late = [commands[n].kernel for n in calls]
    is_ready = Launches.is_ready
    monkeypatch.setattr(
        Launches, "is_ready", lambda self, n: commands[n].kernel not in late and is_ready(self, n)
    )
    assert late and first not in late
    x = np.ones((2, 12), np.float32)
    there.run([x])
    assert _undone(there) == {calls[0]}


@pytest.fixture
def later(bindings: CublasLt, monkeypatch: pytest.MonkeyPatch) -> CublasLt:
    """The library where no run waits for trials, and trials wait for runs as long as it takes."""
    monkeypatch.setattr(module, "_TRIED_SECONDS", 0)
    monkeypatch.setattr(background, "_PATIENCE_SECONDS", 30)
    return bindings


def test_what_another_thread_has_found_meanwhile_is_used(
    later: CublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_PATIENCE_SECONDS", 0)  # the first thread's run goes on
    # Frames of a device lie where there is room: products of other alignments are others.
    monkeypatch.setattr(module, "alignment_of", lambda address: 64)
    library = _library()
    there, _ = _engines(later, _TEXT, {}, library)
    x, others = np.eye(4, dtype=np.float32), [True]

    def late(*_: Any) -> bool:
        if others:  # the first thread is overtaken by a second
            others.pop()
            second = threading.Thread(target=there.run, args=([x, x],))
            second.start()
            second.join()
            _no_longer_pending(library)
        return False

    monkeypatch.setattr(module.CublasLt, "_may_wait", late)
    there.run([x, x])
    assert not _undone(there)


def test_a_product_that_is_dropped_while_it_is_prepared(
    later: CublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, prepared = module.CublasLt._prepare, list[int]()

    def counted(library: module.CublasLt, case: Any) -> bool:
        prepared.append(case.work.numbers[0])
        return prepare(library, case)

    monkeypatch.setattr(module.CublasLt, "_prepare", counted)
    monkeypatch.setattr(module, "_MOST_SHAPES", 1)
    library = _library()
    there, _ = _engines(later, _TEXT, {}, library)
    with background.WALKS:
        for size, pending in ((3, 1), (4, 2), (3, 2)):
            x = np.eye(size, dtype=np.float32)
            assert there.run([x, 2 * x])[0].tolist() == (2 * x).tolist()
            assert library.pending == pending
    _no_longer_pending(library)
    assert len(library._products) == 1
    assert len(prepared) == len(set(prepared)) == 2  # what is being prepared is not asked for again
    x = np.eye(3, dtype=np.float32)
    assert there.run([x, 2 * x])[0].tolist() == (2 * x).tolist()
    assert not _undone(there)


@pytest.mark.parametrize("is_wrong", [True, False])
def test_what_a_caller_captures_untried_is_tried_for_other_runs(
    later: CublasLt, monkeypatch: pytest.MonkeyPatch, is_wrong: bool
) -> None:
    library = _library()
    there, _ = _engines(later, _TEXT, {}, library)
    x = np.eye(4, dtype=np.float32)
    if is_wrong:
        later.wrong.add(0)
    with background.WALKS:
        with monkeypatch.context() as patch:
            patch.setattr(module, "is_captured", lambda _: True)
            there.run([x, x])
            assert (_undone(there), library.pending) == (frozenset(), 1)
            # While it is being tried, the kernel does the work in captures as elsewhere.
            assert there.run([x, x])[0].tolist() == x.tolist()
            assert _undone(there)
        assert there.run([x, x])[0].tolist() == x.tolist()
    _no_longer_pending(library)
    assert library.version == 1  # our own graphs are captured anew
    assert there.run([x, x])[0].tolist() == x.tolist()
    assert bool(_undone(there)) == is_wrong


def test_a_trial_that_fails_behind_a_wrong_algorithm_is_no_trial(
    bindings: CublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    bindings.wrong.add(0)
    algorithms = cublaslt_products.Products.algorithms

    def few(products: Any, product: Any, alignments: Any, count: int) -> Any:
        if count > 1:
            raise MemoryError("no more of them")
        return algorithms(products, product, alignments, count)

    monkeypatch.setattr(cublaslt_products.Products, "algorithms", few)
    there, _ = _engines(bindings, _TEXT, {})
    x = np.eye(4, dtype=np.float32)
    for _ in range(2):
        assert there.run([x, x])[0].tolist() == x.tolist()


# -- the fastest algorithm ------------------------------------------------------------------------


def _settled(library: Any) -> None:
    deadline = time.monotonic() + 30
    while library.searching and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not library.searching


def _measured(bindings: CublasLt, took: list[float]) -> Any:
    """Takes the times of algorithms from a list, after it has called each."""

    def milliseconds(work: Any, stream: Any, device: Any, calls: int) -> float:
        work()
        number = bindings.used.pop()
        if took[number] < 0:
            raise RuntimeError("this one fails")
        return took[number]

    return milliseconds


@pytest.mark.parametrize(
    ("took", "best"),
    [([3, 2, 1, 2], 2), ([3, 2.99, 4], 0), ([-1, 4, 3], 2), ([-1, -1], 0), ([1], 0)],
)
def test_the_fastest_of_some_algorithms_is_found(
    bindings: CublasLt, monkeypatch: pytest.MonkeyPatch, took: list[float], best: int
) -> None:
    bindings.most = len(took)
    measured, go_on = _measured(bindings, took), threading.Event()

    def milliseconds(*given: Any) -> float:
        assert go_on.wait(30)  # until the first run has used what there was
        return float(measured(*given))

    monkeypatch.setattr(module, "milliseconds", milliseconds)
    x, w = np.ones((4, 3), np.float32), np.ones((3, 5), np.float32)
    for number in range(2):  # the second finds what the first has kept
        library = _library(product_search=True)
        there, here = _engines(bindings, _TEXT, {}, library)
        assert there.run([x, w])[0].tolist() == here.run([x, w])[0].tolist()
        assert bindings.used[-1] == (best if number else 0)
        go_on.set()
        _settled(library)
        there.run([x, w])
        assert bindings.used[-1] == best
        assert library.version == (best > 0 and not number)


@pytest.mark.parametrize(
    ("idle", "wrong", "best"),
    [({2}, (), 3), ({2}, {3}, 1), ({0}, {3}, 2), ((), {0, 2}, 3), ({0, 1, 2, 3}, (), 0)],
)
def test_algorithms_that_do_not_do_the_work_are_not_used(
    bindings: CublasLt, monkeypatch: pytest.MonkeyPatch, idle: Any, wrong: Any, best: int
) -> None:
    bindings.most, took = 4, [4, 3, 1, 2]
    monkeypatch.setattr(module, "milliseconds", _measured(bindings, [float(t) for t in took]))
    go_on, search = threading.Event(), module.CublasLt._fastest

    def fastest(*given: Any) -> int:
        assert go_on.wait(30)
        return search(*given)

    monkeypatch.setattr(module.CublasLt, "_fastest", fastest)
    library = _library(product_search=True)
    there, here = _engines(bindings, _TEXT, {}, library)
    x, w = np.ones((4, 3), np.float32), np.ones((3, 5), np.float32)
    there.run([x, w])
    bindings.idle, bindings.wrong = set(idle), set(wrong)
    go_on.set()
    _settled(library)
    found = there.run([x, w])[0]
    assert bindings.used[-1] == best
    if best:
        assert found.tolist() == here.run([x, w])[0].tolist()


#: Which algorithms do nothing, which are wrong, and the one that is used then.
_TRIALS: list[tuple[Any, Any, int | None]] = [
    ((), (), 0), ({0}, (), 1), ((), {0}, 1), ({1}, {0}, 2), ((), {0, 1, 2}, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "idle", "wrong", "used", "search"),
    [
        *(("product", *trial, search) for trial in _TRIALS for search in (True, False)),
        # Factors that are added, and other types, change what is compared, not what follows.
        *(("bias and residual", *_TRIALS[k], k == 3) for k in (3, 4)),
        *(("a Gelu of half floats", *_TRIALS[k], k == 4) for k in (3, 4)),
    ],
)
def test_an_algorithm_is_tried_before_runs_use_it(
    bindings: CublasLt,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    idle: Any,
    wrong: Any,
    used: int | None,
    search: bool,
) -> None:
    monkeypatch.setattr(module, "milliseconds", lambda work, *_: work() or 1.0)
    bindings.most, bindings.idle, bindings.wrong = 3, set(idle), set(wrong)
    like = "half: some roundings" if "half" in name else "float: sums"
    for _ in range(2):  # the second finds what the first has kept
        library = _library(product_search=search)
        there, here = _engines(bindings, *CASES[name][:2], library)
        for _ in range(3):
            feeds = _feeds(CASES[name][0], CASES[name][2])
            found, expected = there.run(feeds)[0], here.run(feeds)[0]
            assert_near(found, expected, like)
            _settled(library)
        assert len(_undone(there)) == (used is None)
        if used is not None:
            assert bindings.used[-1] == used


def test_a_better_algorithm_makes_another_graph(
    bindings: CublasLt, monkeypatch: pytest.MonkeyPatch
) -> None:
    bindings.most = 2
    measured, go_on = _measured(bindings, [2, 1]), threading.Event()

    def milliseconds(*given: Any) -> float:
        assert go_on.wait(30)
        return float(measured(*given))

    monkeypatch.setattr(module, "milliseconds", milliseconds)
    library = _library(product_search=True)
    there, here = _engines(bindings, _TEXT, {}, library)
    x, w = np.ones((4, 3), np.float32), np.full((3, 5), 2, np.float32)
    for _ in range(3):  # the second is captured, while nothing has been measured
        there.run([x, w])
    assert (bindings.driver.captures, set(bindings.used)) == (1, {0})
    assert "1 being measured" in "\n".join(there.executable.report().remarks)
    go_on.set()
    _settled(library)
    for _ in range(3):
        assert there.run([x, w])[0].tolist() == here.run([x, w])[0].tolist()
    assert bindings.used[-1] == 1 and bindings.driver.captures == 2
