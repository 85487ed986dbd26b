"""Plans of convolutions: how they are asked for, built, chosen and kept."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sardonyx.api.inspection import SessionInspection, inspect_engine
from sardonyx.compiler.drive import create_engine
from sardonyx.compiler.options import EngineOptions
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.libraries import background, cudnn_plans
from sardonyx.cuda.libraries import cudnn as module
from sardonyx.cuda.libraries.cudnn_attention import AttentionForm
from sardonyx.cuda.libraries.cudnn_convolution import ConvolutionForm
from sardonyx.cuda.libraries.libraries import (
    Libraries,
    LibrarySettings,
    LibraryWork,
    find_libraries,
)
from sardonyx.cuda.libraries.rehearsal import Rehearsal
from sardonyx.plan.plan import LibraryCall
from sardonyx.plan.vendor_attention import ATTENTION
from sardonyx.runtime.engine import Engine
from sardonyx.runtime.explain import explain
from sardonyx.store.cache import Cache
from tests.cuda.test_accelerate import CASES, _feeds
from tests.cuda.test_library_attention import CASES as ATTENTIONS
from tests.cuda.test_library_attention import _feeds as attention_feeds
from tests.support.fake_cudnn import Cudnn
from tests.support.fake_provider import FakeProvider, installed
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_CONVOLUTIONS = [name for name, case in CASES.items() if "convolution" in case[3]]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Cudnn]:
    cache = Cache(tmp_path, 10**9)
    monkeypatch.setattr(cudnn_plans, "default_cache", lambda: cache)
    with installed() as driver:
        package = Cudnn(driver)
        monkeypatch.setitem(sys.modules, "cudnn", package)
        monkeypatch.setattr(background, "_IDLE_SECONDS", 0.05)
        yield package


def _library(**options: Any) -> module.Cudnn:
    return module.Cudnn(Device(0), LibrarySettings(**options))


def _engines(
    package: Cudnn, text: str, weights: Any, library: module.Cudnn | None = None
) -> tuple[Engine, Engine]:
    libraries = Libraries({"convolution": library or _library()})
    provider: Any = FakeProvider(package.driver, libraries=libraries)
    model = model_of(text, weights, opset=17).SerializeToString()
    return (
        create_engine(model, EngineOptions(provider=provider, use_cache=False)),
        # Many tests compare with the same one: it is compiled once.
        create_engine(model, EngineOptions()),
    )


def _run(there: Engine, here: Engine, name: str) -> None:
    feeds = _feeds(CASES[name][0], CASES[name][2])
    like = "half: some roundings" if "half" in name else "float: sums"
    found, expected = there.run(feeds)[0], here.run(feeds)[0]
    assert_near(found, expected, like)


def _waited(there: Engine, *, searches: bool = True) -> SessionInspection:
    """What there is once libraries have made their plans, and searched if that is waited for."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = inspect_engine(there)
        if not found.libraries.pending and not (searches and found.libraries.searching):
            return found
        time.sleep(0.005)
    raise AssertionError(found.libraries)


@pytest.mark.parametrize("name", _CONVOLUTIONS)
def test_a_plan_is_used_once_it_is_built(
    package: Cudnn, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # Kernels of the host are no measure of what a device does.
    monkeypatch.setattr(ConvolutionForm, "competes", lambda *_: False)
    there, here = _engines(package, CASES[name][0], CASES[name][1])
    _run(there, here, name)
    _waited(there)
    for _ in range(3):
        _run(there, here, name)
    assert not inspect_engine(there).libraries.undone, explain(there)
    assert package.executed


@pytest.mark.parametrize(
    ("options", "mode", "built"),
    [
        ({}, "AA", [0, 0, 1]),
        ({"convolution_search": "HEURISTIC"}, "A", [0]),
        ({"convolution_search": "DEFAULT"}, "B", [0]),
    ],
)
def test_plans_are_chosen_as_the_option_says(
    package: Cudnn, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], mode: str, built: Any
) -> None:
    def measured(work: Any, stream: int, _: Device) -> float:
        work()
        package.driver.cuStreamSynchronize(stream)
        return 1.0 / (1 + package.asked[-1])

    monkeypatch.setattr(cudnn_plans, "milliseconds", measured)
    there, here = _engines(package, *CASES["windows with a border"][:2], _library(**options))
    _run(there, here, "windows with a border")
    _waited(there)
    assert "".join(package.searched) == mode
    assert package.built == built


#: What is wrong -> plans that do nothing, plans that are wrong, and those that are used then.
_BAD_PLANS: dict[str, tuple[Any, Any, Any]] = {
    "the fastest is idle": ({1}, (), {0}),
    "the first is idle": ({0}, (), {1}),
    "the fastest is wrong": ((), {1}, {0}),
    "all are idle": ({0, 1}, (), ()),
    "the first is wrong": ((), {0}, {1}),
    "the only one is wrong": ({0}, {1}, ()),
    "all are wrong": ((), {0, 1}, ()),
}
#: The other searches end in the same checks.
_SEARCHES = {
    "EXHAUSTIVE": list(_BAD_PLANS),
    "HEURISTIC": ["the first is idle", "the first is wrong", "all are wrong"],
    "DEFAULT": ["the first is idle", "the first is wrong", "all are idle"],
}


@pytest.mark.parametrize(
    ("search", "bad"), [(search, bad) for search, names in _SEARCHES.items() for bad in names]
)
def test_plans_that_do_not_do_the_work_are_not_used(
    package: Cudnn,
    monkeypatch: pytest.MonkeyPatch,
    search: str,
    bad: str,
) -> None:
    idle, wrong, used = _BAD_PLANS[bad]
    package.idle, package.wrong = set(idle), set(wrong)

    def measured(work: Any, stream: int, _: Device) -> float:
        work()
        package.driver.cuStreamSynchronize(stream)
        return 1.0 / (1 + package.asked[-1])  # the second one is the faster

    monkeypatch.setattr(cudnn_plans, "milliseconds", measured)
    name = "windows with a border"
    for _ in range(2):  # the second time what is in the cache decides
        library = _library(convolution_search=search)
        there, here = _engines(package, *CASES[name][:2], library)
        _run(there, here, name)
        _waited(there)
        package.asked.clear()
        for _ in range(3):
            _run(there, here, name)
        assert set(package.asked) == set(used)


def test_runs_use_first_plans_until_all_are_measured(
    package: Cudnn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first and the better ones change the version once; those stay: graphs may have them."""
    monkeypatch.setattr(background, "_PATIENCE_SECONDS", 30)  # all are wanted before one is made
    may_measure, name = threading.Event(), "two convolutions with a shortcut"

    def measured(work: Any, stream: int, _: Device) -> float:
        assert may_measure.wait(30)
        work()
        package.driver.cuStreamSynchronize(stream)
        return 1.0 / (1 + package.asked[-1])

    monkeypatch.setattr(cudnn_plans, "milliseconds", measured)
    library = _library()
    there, here = _engines(package, *CASES[name][:2], library)
    _run(there, here, name)
    libraries = _waited(there, searches=False).libraries
    assert (libraries.pending, libraries.searching, libraries.version) == (0, 3, 1)
    package.asked.clear()
    _run(there, here, name)
    assert set(package.asked) == {0}
    assert "3 being measured" in " ".join(there.executable.report().remarks)
    may_measure.set()
    _waited(there)
    package.asked.clear()
    for _ in range(3):
        _run(there, here, name)
    assert set(package.asked) == {1}
    assert inspect_engine(there).libraries.version == 2
    assert [built.index for built in library._replaced] == [0, 0, 0]


def test_a_plan_that_was_dropped_and_asked_for_again_is_not_replaced_by_its_first_search(
    package: Cudnn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph may have the kernels of the one that is there; that has a search of its own."""
    jobs: list[tuple[bool, Any]] = []

    def do(_: Any, work: Any, *, can_wait: bool = False) -> bool:
        jobs.append((can_wait, work))
        return True

    def work(can_wait: bool) -> None:
        number = [waits for waits, _ in jobs].index(can_wait)
        jobs.pop(number)[1]()

    def measured(work: Any, stream: int, _: Device) -> float:
        work()
        package.driver.cuStreamSynchronize(stream)
        return 1.0 / (1 + package.asked[-1])

    monkeypatch.setattr(background.Background, "do", do)
    monkeypatch.setattr(cudnn_plans, "milliseconds", measured)
    monkeypatch.setattr(module, "_MOST_PLANS", 1)
    library = _library()
    there, _ = _engines(package, *CASES["windows with a border"][:2], library)

    def run(size: int) -> Any:
        there.run([np.ones((1, 4, size, size), np.float32)])
        return next(iter(library._plans.values()))

    run(3)
    work(False)  # its first plan; the search waits
    run(4)
    work(False)
    run(3)
    run(4)  # the second time: two builds of this size, of which the first to come counts
    run(3)
    work(False)
    first = run(3)
    assert first is not None
    while any(not waits for waits, _ in jobs):
        work(False)
    assert run(3) is first
    before = library.version
    while library.searching > 1:
        work(True)
        assert run(3) is first
    work(True)
    assert run(3).index == 1
    assert first in library._replaced
    assert library.version == before + 1


def test_plans_are_read_from_the_cache(package: Cudnn) -> None:
    name = "two convolutions with a shortcut"
    for _ in range(2):
        there, here = _engines(package, *CASES[name][:2])
        _run(there, here, name)
        _waited(there)
        _run(there, here, name)
    assert package.read == 3
    assert len(package.searched) == 6  # each of three for what runs use first, and to measure


def test_a_shape_without_a_plan_is_left_to_the_kernel_for_good(package: Cudnn) -> None:
    package.supported = False
    name = "windows apart"
    for _ in range(2):
        there, here = _engines(package, *CASES[name][:2])
        _run(there, here, name)
        _waited(there)
        _run(there, here, name)
        assert len(inspect_engine(there).libraries.undone) == 1
    assert len(package.searched) == 1  # that there is none is kept, too
    assert not package.executed


@pytest.mark.parametrize("step", ["kept", "first", "fastest"])
def test_what_raises_while_plans_are_made_is_logged_and_waited_for_no_longer(
    package: Cudnn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    def broken(*_: object) -> None:
        raise MemoryError("no more of it")

    monkeypatch.setattr(cudnn_plans.PlanMaker, step, broken)
    there, here = _engines(package, *CASES["windows apart"][:2])
    for _ in range(2):
        _run(there, here, "windows apart")
        found = _waited(there)
    assert len(found.libraries.undone) == (step != "fastest")
    deadline = time.monotonic() + 20  # the thread logs when nobody waits for it any more
    while "no more of it" not in caplog.text and time.monotonic() < deadline:
        time.sleep(0.005)
    assert "no more of it" in caplog.text


def test_plans_are_bounded(package: Cudnn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_PLANS", 2)
    name = "windows with a border"
    library = _library()
    there, here = _engines(package, *CASES[name][:2], library)
    for size in (3, 4, 5, 3):
        for _ in range(2):
            x = np.ones((1, 4, size, size), np.float32)
            assert_near(there.run([x])[0], here.run([x])[0], "float: sums")
            _waited(there)
        assert len(library._plans) <= 2
    assert library.version == 4 + 2


def test_without_the_packages_everything_works_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("cudnn", "nvmath", "nvmath.bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    with installed() as driver:
        libraries = find_libraries.__wrapped__(Device(0), LibrarySettings())
        assert sorted(libraries.missing) == ["attention", "convolution", "matmul"]
        assert "nvmath-python is not usable" in libraries.missing["matmul"]
        provider: Any = FakeProvider(driver, libraries=libraries)
        text, weights, shapes, _ = CASES["bias and relu"]
        model = model_of(text, weights).SerializeToString()
        engine = create_engine(model, EngineOptions(provider=provider, use_cache=False))
        assert engine.run(_feeds(text, shapes))[0].shape == (2, 3, 8)
        assert all(c.library is None for c in engine.executable.plan.calls)


_ATTENTION = "a mask of queries and keys"


def _attention_engines(
    package: Cudnn, libraries: Libraries | None = None, **options: Any
) -> tuple[Engine, Engine]:
    if libraries is None:
        library = module.Cudnn(Device(0), LibrarySettings(**options))
        libraries = Libraries({"attention": library})
    provider: Any = FakeProvider(package.driver, libraries=libraries)
    text, weights, _, _ = ATTENTIONS[_ATTENTION]
    model = model_of(text, weights, opset=23).SerializeToString()
    return (
        create_engine(model, EngineOptions(provider=provider, use_cache=False)),
        # Many tests compare with the same one: it is compiled once.
        create_engine(model, EngineOptions()),
    )


def _attend(there: Engine, here: Engine) -> None:
    text, _, shapes, _ = ATTENTIONS[_ATTENTION]
    feeds = attention_feeds(text, shapes)
    assert_near(there.run(feeds)[0], here.run(feeds)[0], "half: some roundings")


@pytest.mark.parametrize(
    ("kernel", "plan", "executed"), [(2.0, 1.0, True), (1.0, 2.0, False)], ids=["slower", "faster"]
)
def test_the_faster_of_kernel_and_plan_attends(
    package: Cudnn, monkeypatch: pytest.MonkeyPatch, kernel: float, plan: float, executed: bool
) -> None:
    launched: list[str] = []
    held: dict[int, bytes] = {}
    prepare, is_quiet = Rehearsal.prepare, threading.Event()

    def prepared(rehearsal: Rehearsal, loan: Any, stream: Any) -> Any:
        assert is_quiet.wait(30)
        held.update((address, bytes(block)) for address, block in package.driver.memory.items())
        return prepare(rehearsal, loan, stream)

    monkeypatch.setattr(Rehearsal, "prepare", prepared)

    def measured(work: Any, stream: int, device: Device, calls: int = 1) -> float:
        assert is_quiet.wait(30)  # no run launches anything, or writes, meanwhile
        before = package.driver.launches
        work()
        package.driver.cuStreamSynchronize(stream)
        launched.append("kernel" if package.driver.launches > before else "plan")
        if launched[-1] == "plan":
            return plan
        # The kernel wrote, but to lent memory alone.
        memory = package.driver.memory
        assert {address: bytes(memory[address]) for address in held} == held
        return kernel

    monkeypatch.setattr(cudnn_plans, "milliseconds", measured)
    for _ in range(2):  # the second time what is in the cache decides
        is_quiet.clear()
        there, here = _attention_engines(package)
        _attend(there, here)
        is_quiet.set()
        _waited(there)
        package.executed = 0
        for _ in range(3):
            _attend(there, here)
        assert bool(package.executed) == executed
    assert launched == ["plan", "plan", "kernel"]
    assert held


@pytest.mark.parametrize(
    ("attention", "executed", "said"),
    [("", False, ""), ("cudnn", True, ""), ("kernel", False, "sdpa_kernel = 16")],
)
def test_what_attends_is_what_is_asked_for(
    package: Cudnn, monkeypatch: pytest.MonkeyPatch, attention: str, executed: bool, said: str
) -> None:
    """Where the kernel is faster, and where it would be by the number of scores."""

    def measured(work: Any, stream: int, device: Device, calls: int = 1) -> float:
        before = package.driver.launches
        work()
        package.driver.cuStreamSynchronize(stream)
        return 1.0 if package.driver.launches > before else 2.0

    monkeypatch.setattr(cudnn_plans, "milliseconds", measured)
    libraries = find_libraries.__wrapped__(Device(0), LibrarySettings(attention=attention))
    there, here = _attention_engines(package, libraries)
    _attend(there, here)
    _waited(there)
    package.executed = 0
    _attend(there, here)
    assert bool(package.executed) == executed
    assert said in explain(there)
    text = "g (float16[1,2,64,8] q, float16[1,2,64,8] k, float16[1,2,64,8] v)"
    text += " => (float16[N,H,S,W] y) { y = Attention(q, k, v) }"
    model = model_of(text, opset=23).SerializeToString()
    provider: Any = FakeProvider(package.driver, libraries=libraries)
    small = create_engine(model, EngineOptions(provider=provider, use_cache=False))
    planned: Any = small.executable
    assert (planned.plan.calls[0].library is not None) == (attention == "cudnn")


def test_a_warning_where_attention_cannot_be_what_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "cudnn", None)
    with installed():
        find_libraries.__wrapped__(Device(0), LibrarySettings(attention="cudnn"))
    assert "sdpa_kernel = 8 asks for cuDNN's attention, but nvidia-cudnn-frontend" in caplog.text


@pytest.mark.parametrize(
    ("sizes", "worth"),
    [
        ({"batch": 1, "heads": 12, "key_heads": 12, "rows": 256, "keys": 256}, False),
        ({"batch": 1, "heads": 12, "key_heads": 12, "rows": 512, "keys": 512}, True),
        ({"batch": 32, "heads": 12, "key_heads": 12, "rows": 128, "keys": 128}, True),
        ({"batch": 1, "heads": 12, "key_heads": 12, "rows": 1, "keys": 2048}, False),
        ({"batch": 1, "heads": 32, "key_heads": 8, "rows": 1, "keys": 2048}, True),
    ],
)
def test_the_rule_for_attentions(sizes: dict[str, int], worth: bool) -> None:
    numbers = tuple(sizes.get(name, 1) for name in ATTENTION)
    call = LibraryCall("attention", (), 0)
    work = LibraryWork("float16", "float16", "", 0, 0, 0, 0, 0, numbers, call)
    assert AttentionForm().is_worth(work) == worth


def test_attention_of_memory_that_lies_anyhow_is_left_to_the_kernel() -> None:
    call = LibraryCall("attention", (), 0)
    work = LibraryWork("float16", "float16", "", 256, 512, 768, 0, 0, (), call, 1024)
    form = AttentionForm()
    assert form.pack(work) == {1: 256, 2: 512, 3: 1024, 4: 768}
    for name in ("left", "right", "values", "out", "bias"):
        assert form.pack(replace(work, **{name: 264})) == {}


@pytest.mark.parametrize("worth", [True, False])
def test_without_measurements_a_rule_decides(
    package: Cudnn, monkeypatch: pytest.MonkeyPatch, worth: bool
) -> None:
    """Then the first plan is used whose result another one has, too."""
    monkeypatch.setattr(AttentionForm, "is_worth", lambda *_: worth)
    there, here = _attention_engines(package, convolution_search="HEURISTIC")
    for _ in range(3):
        _attend(there, here)
        _waited(there)
    assert package.built == ([0, 1, 0] if worth else [])
    assert bool(package.executed) == worth
