"""Plans of convolutions: how they are asked for, built, chosen and kept."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sardonyx.cuda import background
from sardonyx.cuda import cudnn as module
from sardonyx.cuda.device import Device
from sardonyx.cuda.libraries import Libraries, LibrarySettings, find_libraries
from sardonyx.runtime.cache import Cache
from sardonyx.runtime.engine import Engine
from sardonyx.runtime.session import EngineOptions, create_engine
from tests.cuda.test_accelerate import CASES, _feeds
from tests.support.fake_cudnn import Cudnn
from tests.support.fake_driver import FakeProvider, installed
from tests.support.session import model_of

_CONVOLUTIONS = [name for name, case in CASES.items() if "convolution" in case[3]]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Cudnn]:
    cache = Cache(tmp_path, 10**9)
    monkeypatch.setattr(module, "default_cache", lambda: cache)
    with installed() as driver:
        package = Cudnn(driver)
        monkeypatch.setitem(sys.modules, "cudnn", package)
        monkeypatch.setattr(background, "_IDLE_SECONDS", 0.05)
        yield package


def _engines(package: Cudnn, text: str, weights: Any, **options: Any) -> tuple[Engine, Engine]:
    library = module.Cudnn(Device(0), LibrarySettings(**options))
    libraries = Libraries({"convolution": library})
    provider: Any = FakeProvider(package.driver, libraries=libraries)
    model = model_of(text, weights, opset=17).SerializeToString()
    return (
        create_engine(model, EngineOptions(provider=provider, use_cache=False)),
        create_engine(model, EngineOptions(use_cache=False)),
    )


def _run(there: Engine, here: Engine, name: str) -> None:
    feeds = _feeds(CASES[name][0], CASES[name][2])
    tolerance = 4e-3 if "half" in name else 1e-5
    found, expected = there.run(feeds)[0], here.run(feeds)[0]
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def _wait(there: Engine) -> Any:
    executable: Any = there.executable
    deadline = time.monotonic() + 20
    while executable.libraries.pending and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not executable.libraries.pending
    return executable


@pytest.mark.parametrize("name", _CONVOLUTIONS)
def test_a_plan_is_used_once_it_is_built(package: Cudnn, name: str) -> None:
    there, here = _engines(package, CASES[name][0], CASES[name][1])
    _run(there, here, name)
    executable = _wait(there)
    for _ in range(3):
        _run(there, here, name)
    undone = [executable.plan.commands[k].library for k in executable._undone]
    assert undone == [], executable.remarks()
    assert package.executed


@pytest.mark.parametrize(
    ("options", "mode", "built"),
    [
        ({}, "A", 3),
        ({"convolution_search": "HEURISTIC"}, "A", 1),
        ({"convolution_search": "DEFAULT"}, "B", 1),
    ],
)
def test_plans_are_chosen_as_the_option_says(
    package: Cudnn, options: dict[str, Any], mode: str, built: int
) -> None:
    there, here = _engines(package, *CASES["windows with a border"][:2], **options)
    _run(there, here, "windows with a border")
    _wait(there)
    assert package.searched == [mode]
    assert len(package.built) == built


def test_plans_are_read_from_the_cache(package: Cudnn) -> None:
    name = "two convolutions with a shortcut"
    for _ in range(2):
        there, here = _engines(package, *CASES[name][:2])
        _run(there, here, name)
        _wait(there)
        _run(there, here, name)
    assert package.read == 3
    assert len(package.searched) == 3


def test_a_shape_without_a_plan_is_left_to_the_kernel_for_good(package: Cudnn) -> None:
    package.supported = False
    name = "windows apart"
    for _ in range(2):
        there, here = _engines(package, *CASES[name][:2])
        _run(there, here, name)
        executable = _wait(there)
        _run(there, here, name)
        assert len(executable._undone) == 1
    assert len(package.searched) == 1  # that there is none is kept, too
    assert not package.executed


def test_plans_are_bounded(package: Cudnn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_PLANS", 2)
    name = "windows with a border"
    there, here = _engines(package, *CASES[name][:2])
    (library,) = there.executable.libraries._every  # type: ignore[attr-defined]  # of a device
    for size in (3, 4, 5, 3):
        for _ in range(2):
            x = np.ones((1, 4, size, size), np.float32)
            np.testing.assert_allclose(there.run([x])[0], here.run([x])[0], rtol=1e-5, atol=1e-5)
            _wait(there)
        assert len(library._plans) <= 2
    assert library.version == 4 + 2


def test_without_the_packages_everything_works_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("cudnn", "nvmath", "nvmath.bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    with installed() as driver:
        libraries = find_libraries.__wrapped__(Device(0), LibrarySettings())
        assert sorted(libraries.missing) == ["convolution", "matmul"]
        assert "nvmath-python is not usable" in libraries.missing["matmul"]
        provider: Any = FakeProvider(driver, libraries=libraries)
        text, weights, shapes, _ = CASES["bias and relu"]
        model = model_of(text, weights).SerializeToString()
        engine = create_engine(model, EngineOptions(provider=provider, use_cache=False))
        assert engine.run(_feeds(text, shapes))[0].shape == (2, 3, 8)
        assert all(c.library is None for c in engine.executable.plan.calls)
