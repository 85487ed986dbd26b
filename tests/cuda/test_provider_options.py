"""Options of the provider: what each one changes, how it is read back, what the log says of it."""

from __future__ import annotations

import ctypes
import gc
import logging
import weakref
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.cuda_options import HAS_STREAM, OPTIONS
from sardonyx.base import notes
from sardonyx.base.errors import InvalidArgument
from sardonyx.cuda import provider
from sardonyx.cuda.driver.device import device
from sardonyx.cuda.libraries.libraries import Libraries, LibrarySettings
from tests.api.cuda_options import DOCUMENT, document
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
_TEXT = "g (float[N,M] x) => (float[N,M] y) { a = CumSum(x, one) y = Softmax<axis=-1>(a) }"
_MIB = 1 << 20


def _session(text: str = _TEXT, **options: Any) -> ort.InferenceSession:
    model = model_of(text, {"one": np.array(1)}).SerializeToString()
    return ort.InferenceSession(model, providers=[(CUDA, options)])


def _device_of(session: ort.InferenceSession) -> dict[str, Any]:
    session.run(None, {"x": np.ones((300, 1024), np.float32)})
    held = session.memory()["devices"]
    (name,) = (name for name in held if name.startswith("cuda:"))
    has_spare = held[name]["held_bytes"] > held[name]["peak_bytes"] + _MIB
    return {"device": name, "has_spare": has_spare, **held[name]}


# -- what each changes -----------------------------------------------------------------------------


MEMORY: list[tuple[Any, ...]] = [
    ("device_id", 1, "device", "cuda:0", "cuda:1"),
    ("gpu_mem_limit", 40 * _MIB, "limit_bytes", 2**64 - 1, 40 * _MIB),
    ("arena_extend_strategy", "kSameAsRequested", "has_spare", True, False),
]


@pytest.mark.parametrize(("option", "value", "fact", "usual", "then"), MEMORY)
def test_memory(
    lazy: FakeDriver, option: str, value: Any, fact: str, usual: Any, then: Any
) -> None:
    lazy.devices = 2
    assert _device_of(_session())[fact] == usual
    assert _device_of(_session(**{option: value}))[fact] == then


def test_functions_of_the_caller(lazy: FakeDriver) -> None:
    called: list[str] = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
    def allocate(size: int) -> int:
        called.append("gpu_external_alloc")
        return int(lazy.cuMemAlloc(size)[1])

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def free(address: int) -> None:
        called.append("gpu_external_free")
        lazy.cuMemFree(address)

    @ctypes.CFUNCTYPE(None)
    def empty() -> None:
        called.append("gpu_external_empty_cache")

    functions = {
        "gpu_external_alloc": allocate, "gpu_external_free": free,
        "gpu_external_empty_cache": empty,
    }  # fmt: skip
    session = _session(**{k: ctypes.cast(f, ctypes.c_void_p).value for k, f in functions.items()})
    session.run(None, {"x": np.ones((3, 4), np.float32)})
    session.trim()
    assert set(called) == set(functions)


ASKED: list[tuple[Any, ...]] = [
    ("use_tf32", False, "tf32", True, False),
    ("cudnn_conv_algo_search", "HEURISTIC", "convolution_search", "EXHAUSTIVE", "HEURISTIC"),
    ("cudnn_conv_algo_search", 2, "product_search", True, False),
    ("cudnn_conv_use_max_workspace", 0, "any_workspace", True, False),
    ("sdpa_kernel", 8, "attention", "", "cudnn"),
    ("sdpa_kernel", 16, "attention", "", "kernel"),
    ("sdpa_kernel", 24, "attention", "", ""),
]


@pytest.mark.parametrize(("option", "value", "field", "usual", "then"), ASKED)
def test_what_libraries_are_asked_for(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch, option: str, value: Any, field: str,
    usual: Any, then: Any,
) -> None:  # fmt: skip
    asked: list[LibrarySettings] = []

    def find(_: Any, settings: LibrarySettings) -> Libraries:
        asked.append(settings)
        return Libraries({})

    monkeypatch.setattr(provider, "find_libraries", find)
    _session()
    _session(**{option: value})
    assert [getattr(settings, field) for settings in asked] == [usual, then]


def test_a_warning_where_there_is_no_graph(
    lazy: FakeDriver, caplog: pytest.LogCaptureFixture
) -> None:
    text = "g (float[N] x) => (int64[A,B] y) { y = NonZero(x) }"
    for value, warns in ((0, False), (1, True)):
        caplog.clear()
        _session(text, enable_cuda_graph=value)
        assert ("runs go without a CUDA graph" in caplog.text) == warns


@pytest.mark.parametrize(("in_stream", "others"), [(1, 0), (0, 2)])
def test_streams_of_copies(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch, in_stream: int, others: int
) -> None:
    device(0).enter()
    text = "g (float[N,M] x) => (float[N,M] y) { y = Neg(x) }"
    _, theirs = lazy.cuStreamCreate(0)
    session = _session(text, user_compute_stream=theirs, do_copy_in_default_stream=in_stream)
    x, copy = np.ones((30, 40), np.float32), lazy.cuMemcpyAsync
    streams: dict[tuple[str, str], int] = {}

    def seen(target: int, source: int, size: int, stream: int) -> Any:
        if size == x.nbytes:
            streams[lazy._kind(source), lazy._kind(target)] = int(stream)
        return copy(target, source, size, stream)

    monkeypatch.setattr(lazy, "cuMemcpyAsync", seen)
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)
    assert streams.keys() == {("pinned", "device"), ("device", "pinned")}
    assert len(set(streams.values()) - {theirs}) == others


#: What streams of libraries have, by their handle.
STREAMS: dict[str, Any] = {
    "a protocol": lambda handle: {"__cuda_stream__": lambda self: (0, handle)},
    "cupy's": lambda handle: {"ptr": handle},
    "torch's": lambda handle: {"cuda_stream": handle},
    "ours": lambda handle: {"get_handle": lambda self: handle},
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_of_any_library(lazy: FakeDriver, name: str) -> None:
    device(0).enter()
    _, theirs = lazy.cuStreamCreate(0)
    stream = type("Given", (), STREAMS[name](theirs))()
    session = _session(user_compute_stream=stream)
    read = session.get_provider_options()[CUDA]
    assert (read["user_compute_stream"], read[HAS_STREAM]) == (str(theirs), "1")
    session.run(None, {"x": np.ones((3, 4), np.float32)})
    assert lazy.done[theirs] > 0
    is_there = weakref.ref(stream)
    del stream
    gc.collect()
    assert is_there() is not None
    session.set_providers([CUDA])
    gc.collect()
    assert is_there() is None
    done = lazy.done[theirs]
    session.run(None, {"x": np.ones((3, 4), np.float32)})
    assert lazy.done[theirs] == done


@pytest.mark.parametrize("name", STREAMS)
def test_streams_of_any_library_must_be_the_devices(lazy: FakeDriver, name: str) -> None:
    lazy.devices = 2
    stream = type("Given", (), STREAMS[name](device(1).new_stream().handle))()
    session = _session()
    for use in (
        lambda: _session(user_compute_stream=stream),
        lambda: session.set_providers([CUDA], [{"user_compute_stream": stream}]),
    ):
        with pytest.raises(InvalidArgument, match=r"(?s)another device's.*device 0.*device 1"):
            use()
    there = _session(device_id=1, user_compute_stream=stream)
    np.testing.assert_array_equal(there.run(None, {"x": np.zeros((1, 1), np.float32)})[0], 1)


# -- how it is read back, and what is noted --------------------------------------------------------


VALUES: list[tuple[Any, ...]] = [
    ("cudnn_conv1d_pad_to_nc1d", "1", "1", False),
    ("prefer_nhwc", True, "1", False),
    ("fuse_conv_bias", "true", "1", False),
    ("enable_skip_layer_norm_strict_mode", 1, "1", False),
    ("use_ep_level_unified_stream", 1, "1", False),
    ("tunable_op_enable", 1, "1", True),
    ("tunable_op_tuning_enable", False, "0", False),
    ("tunable_op_max_tuning_duration_ms", 5, "5", True),
    ("external_data_loader_use_gds", 1, "1", True),
    ("external_data_loader_reading_threads", 2, "2", True),
    ("arena_extend_strategy", 1, "kSameAsRequested", False),
    ("arena_extend_strategy", "0", "kNextPowerOfTwo", False),
    ("cudnn_conv_algo_search", 0, "EXHAUSTIVE", False),
    ("cudnn_conv_algo_search", "1", "HEURISTIC", False),
    ("cudnn_conv_algo_search", 2, "DEFAULT", False),
    ("gpu_mem_limit", "0x10", "16", False),
    ("do_copy_in_default_stream", False, "0", False),
    (HAS_STREAM, 0, "0", False),
    (HAS_STREAM, 1, "0", True),
]


@pytest.mark.parametrize(("option", "value", "read", "noted"), VALUES)
def test_values(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, option: str, value: Any,
    read: str, noted: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(notes, "_noted", set())
    with caplog.at_level(logging.WARNING, "sardonyx"):
        assert ort.api.providers.check_options(CUDA, {option: value})[option] == read
    assert (f"option {option} = " in caplog.text) == noted


def test_a_test_for_each_option() -> None:
    """None is in the table of options that no table here, or test, names."""
    acting = {row[0] for row in (*MEMORY, *ASKED)}
    acting |= {"user_compute_stream", "enable_cuda_graph", "do_copy_in_default_stream"}
    acting |= {name for name in OPTIONS if name.startswith("gpu_external_")}
    assert acting == {name for name, option in OPTIONS.items() if not option.is_hint}
    assert {name for name, option in OPTIONS.items() if option.is_hint} <= {
        row[0] for row in VALUES
    }


def test_the_document_is_what_the_table_says() -> None:
    text = "docs/gpu_options.md is old: run python -m tests.api.cuda_options"
    assert DOCUMENT.read_text() == document(), text


# -- the order of providers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "given", "memory"),
    [
        ([CUDA], [CUDA, CPU], "Cuda"),
        ([CUDA, CPU], [CUDA, CPU], "Cuda"),
        ([CPU, CUDA], [CPU, CUDA], "Cpu"),
        ([CPU], [CPU], "Cpu"),
    ],
)
def test_a_model_runs_where_it_is_named_first(
    lazy: FakeDriver, named: list[str], given: list[str], memory: str
) -> None:
    """The processor has kernels for all nodes, so none is left to what is named after it."""
    model = model_of(_TEXT, {"one": np.array(1)}).SerializeToString()
    session = ort.InferenceSession(model)
    for made in (ort.InferenceSession(model, providers=named), session):
        made.set_providers(named)
        assert made.get_providers() == list(made.get_provider_options()) == given
        assert made.get_inputs()[0].name == "x"
        assert made.get_input_memory_infos()[0].name == memory
        before = lazy.launches
        made.run(None, {"x": np.ones((2, 3), np.float32)})
        assert (lazy.launches > before) == (memory == "Cuda")
