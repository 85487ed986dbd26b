"""Kernels of a module: loaded with it, in the background, or when one is asked for."""

from __future__ import annotations

import gc
import time
from typing import Any

import pytest

from sardonyx.base import errors
from sardonyx.cuda.driver.device import device
from sardonyx.cuda.driver.module import Module
from sardonyx.cuda.libraries import background
from tests.support.driver_types import CUresult
from tests.support.fake_driver import FakeDriver


def _no_longer_pending(module: Module) -> None:
    deadline = time.monotonic() + 30
    while module.pending and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not module.pending


def test_kernels_in_reserve_are_loaded_when_one_is_asked_for(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[bytes] = []

    def load(text: bytes) -> Any:
        loaded.append(text)
        return CUresult.CUDA_SUCCESS, len(loaded)

    def find(module: int, symbol: bytes) -> Any:
        if b"." + b"entry " + symbol + b"(" in loaded[module - 1]:
            return CUresult.CUDA_SUCCESS, 100 * module
        return CUresult.CUDA_ERROR_NOT_FOUND, None

    lazy.cuModuleLoadData, lazy.cuModuleGetFunction = load, find
    monkeypatch.setattr(background, "_PATIENCE_SECONDS", 30)
    with background.WALKS:
        module = Module(device(0), [".entry a("], [".entry b( .entry c(", ".entry e("])
        assert module.function("a") == 100
        assert [module.is_ready(name) for name in "abce"] == [True, False, False, False]
        assert len(loaded) == 1
        assert [module.function(name) for name in "bca"] == [200, 200, 100]
        assert [module.is_ready(name) for name in "abce"] == [True, True, True, False]
        assert len(loaded) == 2
        assert module.function("e") == 300
        with pytest.raises(errors.NotFound, match="'d'"):
            module.function("d")
        assert module.pending == 2
    _no_longer_pending(module)
    assert len(loaded) == 3


def test_kernels_in_reserve_are_loaded_when_nothing_else_is_to_be_done(lazy: FakeDriver) -> None:
    loaded: list[bytes] = []

    def load(text: bytes) -> Any:
        loaded.append(text)
        if len(loaded) == 2:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        return CUresult.CUDA_SUCCESS, len(loaded)

    lazy.cuModuleLoadData = load
    lazy.cuModuleGetFunction = lambda module, _: (CUresult.CUDA_SUCCESS, module)
    module = Module(device(0), [".entry a("], [".entry b(", ".entry c("])
    _no_longer_pending(module)
    assert loaded == [b".entry a(\0", b".entry b(\0", b".entry c(\0"]
    assert [module.is_ready(name) for name in "abc"] == [True] * 3  # nobody is at work on "b"
    assert [module.function(name) for name in "bc"] == [4, 3]  # what failed is tried again


def test_kernels_of_a_session_that_is_gone_are_not_loaded(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, unloaded = list[bytes](), list[int]()

    def load(text: bytes) -> Any:
        loaded.append(text)
        return CUresult.CUDA_SUCCESS, 10 + len(loaded)

    def unload(module: int) -> Any:
        unloaded.append(module)
        return (CUresult.CUDA_SUCCESS,)

    lazy.cuModuleLoadData, lazy.cuModuleUnload = load, unload
    lazy.cuModuleGetFunction = lambda module, _: (CUresult.CUDA_SUCCESS, module)
    monkeypatch.setattr(background, "_PATIENCE_SECONDS", 30)
    with background.WALKS:
        module = Module(device(0), [".entry a("], [".entry b(", ".entry c("])
        module.function("b")
        del module
        gc.collect()
        assert set(unloaded) >= {11, 12}
        other = Module(device(0), [".entry a("], [".entry b("])
    _no_longer_pending(other)
    assert loaded == [b".entry a(\0", b".entry b(\0"] * 2


def test_several_modules(lazy: FakeDriver) -> None:
    held: dict[int, bytes] = {}

    def load(text: bytes) -> Any:
        held[text[7]] = text
        return CUresult.CUDA_SUCCESS, text[7]

    def find(module: int, symbol: bytes) -> Any:
        if b".entry " + symbol + b"(" in held[module]:
            return CUresult.CUDA_SUCCESS, 100 * module
        return CUresult.CUDA_ERROR_NOT_FOUND, None

    lazy.cuModuleLoadData, lazy.cuModuleGetFunction = load, find
    module = Module(device(0), [f".entry {name}(" for name in "abcdefgh"])
    assert [module.function(name) for name in "gab"] == [100 * ord(name) for name in "gab"]
