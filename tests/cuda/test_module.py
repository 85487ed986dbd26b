"""Kernels of a module: loaded with it, or when one of those in reserve is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from sardonyx.base import errors
from sardonyx.cuda.device import device
from sardonyx.cuda.module import Module
from tests.support.driver_types import CUresult
from tests.support.fake_driver import FakeDriver


def test_kernels_in_reserve_are_loaded_when_one_is_asked_for(lazy: FakeDriver) -> None:
    loaded: list[bytes] = []

    def load(text: bytes) -> Any:
        loaded.append(text)
        return CUresult.CUDA_SUCCESS, len(loaded)

    def find(module: int, symbol: bytes) -> Any:
        if b"." + b"entry " + symbol + b"(" in loaded[module - 1]:
            return CUresult.CUDA_SUCCESS, 100 * module
        return CUresult.CUDA_ERROR_NOT_FOUND, None

    lazy.cuModuleLoadData, lazy.cuModuleGetFunction = load, find
    module = Module(device(0), [".entry a("], [".entry b( .entry c(", ".entry e("])
    assert module.function("a") == 100
    assert len(loaded) == 1
    assert [module.function(name) for name in "bca"] == [200, 200, 100]
    assert len(loaded) == 2
    assert module.function("e") == 300
    with pytest.raises(errors.NotFound, match="'d'"):
        module.function("d")


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
