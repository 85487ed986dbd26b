"""A driver that does not start: it is asked once in a process, and in what is forked off it."""

from __future__ import annotations

import os
import sys
import types
from enum import IntEnum

import pytest

from sardonyx.base.errors import EPFail
from sardonyx.cuda.driver import driver


class CUresult(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_NO_DEVICE = 100


def _no_driver() -> tuple[CUresult]:
    raise RuntimeError("libcuda.so is missing")


@pytest.fixture
def asked(request, monkeypatch):
    """Counts how often the driver is asked to start; the parameter says what it does then."""
    count = []
    module = types.ModuleType("cuda.bindings.driver")
    module.CUresult = CUresult
    module.cuInit = lambda flags: (count.append(flags), request.param())[1]
    package = types.ModuleType("cuda.bindings")
    package.driver = module
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", module)
    driver.bindings.cache_clear()
    yield count
    driver.bindings.cache_clear()


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (lambda: (CUresult.CUDA_ERROR_NO_DEVICE,), "CUDA_ERROR_NO_DEVICE"),
        (_no_driver, "libcuda.so is missing"),
    ],
    indirect=["asked"],
)
def test_a_driver_that_does_not_start_is_asked_once(asked, text) -> None:
    for _ in range(2):
        with pytest.raises(EPFail, match=text):
            driver.bindings()
    child = os.fork()
    if not child:
        status = 2
        try:
            driver.bindings()
        except EPFail as error:
            status = 0 if text in str(error) and len(asked) == 1 else 1
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asked == [0]


def test_a_missing_package_may_be_installed_later(monkeypatch) -> None:
    driver.bindings.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(EPFail, match="cuda-bindings is missing"):
        driver.bindings()
    module = types.ModuleType("cuda.bindings.driver")
    module.CUresult = CUresult
    module.cuInit = lambda flags: (CUresult.CUDA_SUCCESS,)
    package = types.ModuleType("cuda.bindings")
    package.driver = module
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)
    monkeypatch.setattr(os, "register_at_fork", lambda **given: None)
    assert driver.bindings() is module
    driver.bindings.cache_clear()
