"""Arenas: how they grow, what they use again and when, what they say when there is no more."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base import errors, notes
from sardonyx.cuda.driver.device import device
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.memory.arena import Arena, ArenaSettings
from sardonyx.cuda.memory.free_spans import FreeSpan, FreeSpans
from sardonyx.cuda.memory.sources import DeviceSource, PinnedSource
from tests.support.fake_driver import FakeDriver
from tests.support.inside import runs_of
from tests.support.session import model_of
from tests.support.tolerances import assert_near

CUDA = "CUDAExecutionProvider"
_MIB = 1 << 20
_TEXT = """g (float[N,M] x) => (float[N,M] z)
    { a = CumSum(x, one) b = Softmax<axis=-1>(a) z = CumSum(b, one) }"""


def _session(options: Any = None, **provider: Any) -> ort.InferenceSession:
    model = model_of(_TEXT, {"one": np.array(1)}).SerializeToString()
    return ort.InferenceSession(model, options, providers=[(CUDA, provider)])


def _run(session: ort.InferenceSession, rows: int, options: Any = None) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 1024)).astype(np.float32)
    (found,) = session.run(None, {"x": x}, options)
    summed = np.exp(np.cumsum(x.astype(np.float64), 1))
    wanted = np.cumsum(summed / summed.sum(1, keepdims=True), 1)
    assert_near(found, wanted, "half: two roundings")


def _held(session: ort.InferenceSession) -> dict[str, Any]:
    found: dict[str, Any] = session.memory()["devices"]["cuda:0"]
    return found


# -- blocks ---------------------------------------------------------------------------------------


def _arena(**settings: Any) -> Arena:
    return Arena(DeviceSource(device(0)), ArenaSettings(**settings))


@pytest.mark.usefixtures("gpu")
def test_how_it_grows() -> None:
    doubling, exact = _arena(), _arena(strategy="kSameAsRequested")
    kept = []
    for _ in range(5):
        kept += [a.allocate(700_000, "test") for a in (doubling, exact)]
    assert doubling.held_bytes == 7 * _MIB
    assert exact.held_bytes == exact.used_bytes == 5 * 700_160
    assert _arena(first_bytes=16384).allocate(5000, "test").size_bytes == 5120
    one = _arena()
    one.allocate(3 * _MIB, "test", exact=True)
    assert one.held_bytes == 3 * _MIB
    with pytest.raises(errors.InvalidArgument, match="kSameAsRequested"):
        _arena(strategy="kTwice")


@pytest.mark.usefixtures("gpu")
def test_free_neighbours_become_one() -> None:
    arena = _arena(limit_bytes=_MIB)
    blocks = [arena.allocate(_MIB // 8, "test") for _ in range(8)]
    addresses = {b.address for b in blocks}
    assert len(addresses) == 8
    with pytest.raises(errors.OutOfMemory, match="test"):
        arena.allocate(256, "more")
    del blocks[2:4]
    assert arena.allocate(_MIB // 4, "test").address in addresses
    blocks.clear()
    assert arena.allocate(_MIB, "test").size_bytes == _MIB
    assert (arena.held_bytes, arena.peak_bytes) == (_MIB, _MIB)
    arena.trim()
    assert arena.held_bytes == 0


@pytest.mark.usefixtures("gpu")
def test_random_blocks_do_not_overlap() -> None:
    random = np.random.default_rng(1)
    arena, kept = _arena(first_bytes=1 << 16), []
    for _ in range(600):
        kept.append(arena.allocate(int(random.integers(1, 40_000)), "test"))
        if len(kept) > 40:
            del kept[int(random.integers(len(kept)))]
        spans = sorted((b.address, b.address + b.size_bytes) for b in kept)
        assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
        assert arena.used_bytes >= sum(b.size_bytes for b in kept)
    assert arena.held_bytes < 3 * 41 * 40_000
    kept.clear()
    arena.trim()
    assert (arena.used_bytes, arena.held_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("used", "asked", "is_same"),
    [
        ("nothing", "first", True), ("nothing", "any", True), ("first", "first", True),
        ("first", "second", False), ("first", "any", False), ("any", "first", False),
        ("any", "any", False), ("both", "first", False),
    ],
)  # fmt: skip
def test_what_was_let_go_of_last_is_given_first(
    lazy: FakeDriver, used: str, asked: str, is_same: bool
) -> None:
    device(0).enter()
    where = device(0)
    streams = {"first": where.new_stream(), "second": where.new_stream(), "any": None}
    arena = _arena(limit_bytes=_MIB)
    block, other = (arena.allocate(100, "test", streams["first"]) for _ in range(2))
    work_in = {"nothing": [], "both": ["first", "second"]}.get(used, [used])
    for name in work_in:  # the driver of the tests has it under way until somebody waits
        queue = streams[name] or where.copying
        call("cuMemcpyAsync", block.address, lazy.cuMemHostAlloc(64, 0)[1], 64, queue.handle)
        block.uses[streams[name]] = queue.record()
    address = block.address
    del block
    again = arena.allocate(100, "again", streams[asked])
    assert (again.address == address) == is_same
    assert not again.uses
    assert arena.used_bytes == arena.peak_bytes == 512
    assert sorted(arena.largest()) == [(256, "again"), (256, "test")]
    del again, other
    assert arena.statistics()["used_bytes"] == 0


def test_a_block_that_was_too_small_to_be_cut_is_given_again(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the size of another; nothing is looked for again."""
    device(0).enter()
    stream = device(0).new_stream()
    arena = _arena(limit_bytes=_MIB)
    block, larger = (arena.allocate(n, "test", stream) for n in (2048, 8192))
    other = arena.allocate(100, "test", stream)
    address = block.address
    monkeypatch.setattr(arena, "_find", None)
    for _ in range(3):
        del block
        block = arena.allocate(1024, "again", stream)
        assert (block.address, block.size_bytes) == (address, 2048)
    monkeypatch.undo()
    del larger
    block = arena.allocate(1024, "again", stream)
    assert block.size_bytes == 1024  # of the larger one the rest stays
    del block, other
    assert arena.statistics()["used_bytes"] == 0


def test_a_block_is_used_again_after_what_used_it(lazy: FakeDriver) -> None:
    device(0).enter()
    where = device(0)
    first, second = where.new_stream(), where.new_stream()
    arena = _arena(limit_bytes=512, strategy="kSameAsRequested")
    block = arena.allocate(100, "test", first)
    call("cuMemcpyAsync", block.address, lazy.cuMemHostAlloc(64, 0)[1], 64, first.handle)
    block.uses[first] = first.record()
    address = block.address
    del block
    again = arena.allocate(100, "test", first)  # in the same stream nobody waits
    assert (again.address, len(lazy.queues[second.handle])) == (address, 0)
    again.uses[first] = first.record()
    del again
    other = arena.allocate(100, "test", second)  # nor does another, while there is room
    assert (other.address != address, len(lazy.queues[second.handle])) == (True, 0)
    third = arena.allocate(100, "test", second)
    assert third.address == address
    assert len(lazy.queues[second.handle]) == 1  # it waits for the event
    assert lazy.queues[first.handle]
    third.lent |= {-1}
    del third
    arena.allocate(100, "test")
    assert not lazy.queues[first.handle]


def test_memory_that_another_library_had(lazy: FakeDriver) -> None:
    device(0).enter()
    value = ort.OrtValue.ortvalue_from_numpy(np.ones(64, np.float32), "cuda", 0)
    address = value.data_ptr()
    for stream, waits in ((None, False), (1, False), (77, True), (-1, True)):
        capsule = value.__dlpack__(stream=stream)
        block = value._array.block
        assert block.lent
        block.lent = frozenset(block.lent)
        del capsule, block, value
        busy = device(0).new_stream()
        call(
            "cuMemcpyAsync", lazy.cuMemAlloc(64)[1], lazy.cuMemHostAlloc(64, 0)[1], 64, busy.handle
        )
        value = ort.OrtValue.ortvalue_from_numpy(np.ones(64, np.float32), "cuda", 0)
        assert value.data_ptr() == address
        assert (not lazy.queues[busy.handle]) == waits


def test_memory_of_the_host_is_not_used_while_a_copy_reads_it(lazy: FakeDriver) -> None:
    device(0).enter()
    where = device(0)
    stream = where.new_stream()
    arena = Arena(PinnedSource(where))
    block = arena.allocate(100, "test")
    call("cuMemcpyAsync", lazy.cuMemAlloc(64)[1], block.address, 64, stream.handle)
    block.uses[stream] = stream.record()
    address = block.address
    del block
    other = arena.allocate(100, "test")
    assert other.address != address
    stream.synchronize()
    assert arena.allocate(100, "test").address == address


# -- sessions -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("gpu")
def test_the_limit_names_who_holds_memory_and_the_session_goes_on() -> None:
    session = _session(gpu_mem_limit=40 * _MIB)
    _run(session, 50)
    assert session.get_provider_options()[CUDA]["gpu_mem_limit"] == str(40 * _MIB)
    with pytest.raises(
        errors.OutOfMemory, match=r"for input x.*limit is 41943040.*holders.*work in"
    ):
        _run(session, 11_000)
    for _ in range(3):
        _run(session, 50)
    assert _held(session)["held_bytes"] <= 40 * _MIB


def test_a_device_without_room(lazy: FakeDriver) -> None:
    session = _session()
    _run(session, 20)
    lazy.limit_bytes = 3 * _MIB
    with pytest.raises(errors.OutOfMemory, match=r"for input x.*no more memory.*largest holders"):
        _run(session, 600)
    _run(session, 20)
    with pytest.raises(errors.OutOfMemory):
        ort.OrtValue.ortvalue_from_shape_and_type([1 << 30], np.float32, "cuda", 0)
    lazy.limit_bytes = 1 << 40
    _run(session, 600)


@pytest.mark.usefixtures("gpu")
def test_memory_does_not_grow_from_run_to_run() -> None:
    session = _session()
    for rows in (300, 7, 120):
        _run(session, rows)
    before = _held(session)["held_bytes"]
    for _ in range(4):
        for rows in (300, 7, 120, 1):
            _run(session, rows)
    assert _held(session)["held_bytes"] == before


@pytest.mark.usefixtures("gpu")
def test_what_is_given_back() -> None:
    session = _session()
    _run(session, 500)
    assert _held(session)["held_bytes"] > 6 * _MIB
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "gpu:0;cpu:0")
    _run(session, 500, options)
    assert _held(session)["held_bytes"] <= 2 * _MIB
    _run(session, 500)
    session.trim()
    found = _held(session)
    assert found["held_bytes"] <= 2 * _MIB
    assert found["peak_bytes"] > 6 * _MIB
    assert {text for _, text in found["largest"]} == {"weights"}
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "gpu:3")
    with pytest.raises(errors.InvalidArgument, match="gpu:3"):
        _run(session, 5, options)
    _run(session, 5)


def _info(kind: str = "Cuda") -> ort.OrtMemoryInfo:
    return ort.OrtMemoryInfo(
        kind, ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )


def test_an_arena_of_several_sessions(lazy: FakeDriver) -> None:
    settings = {"max_mem": 8 * _MIB, "arena_extend_strategy": 1}
    ort.create_and_register_allocator_v2(CUDA, _info(), {}, ort.OrtArenaCfg(settings))
    with pytest.raises(errors.InvalidArgument, match="already"):
        ort.create_and_register_allocator(_info(), None)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.use_env_allocators", "1")
    sessions = [_session(options) for _ in range(3)]
    for session in sessions:
        _run(session, 200)
    arenas = [runs_of(s).loaded.kind.arena for s in sessions]
    assert arenas[1] is arenas[0] and arenas[2] is arenas[0]
    assert _held(sessions[0])["limit_bytes"] == 8 * _MIB
    assert runs_of(_session()).loaded.kind.arena is not arenas[0]
    # There is room for all three only since idle ones give back what they hold.
    for _ in range(2):
        for session in sessions:
            _run(session, 400)


@pytest.mark.parametrize(
    ("provider", "kind", "options", "expected"),
    [
        (CUDA, "Cuda", {"device_id": 1}, "device_id.*Expected 0, got 1"),
        (CUDA, "Cpu", {}, "has no such memory.*Expected Cuda or CudaPinned, got Cpu"),
        ("CPUExecutionProvider", "Cuda", {}, "has no such memory.*Expected Cpu, got Cuda"),
        ("DmlExecutionProvider", "Cuda", {}, "There is no provider"),
    ],
)
def test_allocators_that_contradict(
    lazy: FakeDriver, provider: str, kind: str, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=expected):
        ort.create_and_register_allocator_v2(provider, _info(kind), options, None)
    ort.create_and_register_allocator_v2(CUDA, _info(), {"device_id": 0}, None)


def test_options_that_are_none_of_the_processors_allocator_are_noted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, 0)
    with caplog.at_level("INFO", "sardonyx"):
        ort.create_and_register_allocator_v2(
            "CPUExecutionProvider", info, {"gpu_mem_limit": "1"}, None
        )
    assert "option gpu_mem_limit" in caplog.text


@pytest.mark.parametrize("name", ["max_mem", "initial_chunk_size_bytes"])
def test_sizes_of_arenas_below_the_default(name: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=f"OrtArenaCfg {name}"):
        ort.OrtArenaCfg({name: -5})
    settings = ort.OrtArenaCfg({name: -1})
    with pytest.raises(errors.InvalidArgument, match=f"OrtArenaCfg {name}"):
        setattr(settings, name, -2)


@pytest.mark.parametrize(
    ("provider", "registers", "options", "noted"),
    [
        (CUDA, True, {}, ""),
        (CUDA, True, {"gpu_mem_limit": 2**64 - 1, "arena_extend_strategy": 0}, ""),
        (CUDA, True, {"gpu_mem_limit": 1 << 30}, "gpu_mem_limit = 1073741824 has no effect"),
        (CUDA, True, {"arena_extend_strategy": 1}, "kSameAsRequested has no effect"),
        (CUDA, False, {}, "there is no allocator for Cuda 0"),
        ("CPUExecutionProvider", True, {}, "its own memory of the processor"),
    ],
)
def test_settings_of_shared_arenas(
    lazy: FakeDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    provider: str, registers: bool, options: dict[str, Any], noted: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(notes, "_noted", set())
    if registers:
        ort.create_and_register_allocator(_info(), None)
    shares = ort.SessionOptions()
    shares.add_session_config_entry("session.use_env_allocators", "1")
    model = model_of(_TEXT, {"one": np.array(1)}).SerializeToString()
    session = ort.InferenceSession(model, shares, providers=[(provider, options)])
    assert (noted in caplog.text) if noted else ("has no effect" not in caplog.text)
    _run(session, 3)


def test_a_session_has_its_own_functions_or_shares_an_arena(lazy: FakeDriver) -> None:
    ort.create_and_register_allocator(_info(), None)
    shares = ort.SessionOptions()
    shares.add_session_config_entry("session.use_env_allocators", "1")
    with pytest.raises(errors.InvalidArgument, match="own functions, or shares"):
        _session(shares, gpu_external_alloc=4096, gpu_external_free=4096)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("arenas", "on_device", "pinned"),
    [("gpu:0", False, True), ("cpu:0", True, False), ("cpu:0;gpu:0", False, False)],
)
def test_what_is_given_back_after_a_run(arenas: str, on_device: bool, pinned: bool) -> None:
    session, options = _session(), ort.RunOptions()
    _run(session, 2000)
    before = session.memory()["devices"]
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", arenas)
    _run(session, 1, options)
    after = session.memory()["devices"]
    held = [after[name]["held_bytes"] == before[name]["held_bytes"] for name in sorted(before)]
    assert held == [on_device, pinned]


def test_functions_of_the_caller(lazy: FakeDriver) -> None:
    taken: list[int] = []
    emptied: list[int] = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
    def allocate(size: int) -> int:
        _, address = lazy.cuMemAlloc(size)
        taken.append(address)
        return int(address)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def free(address: int) -> None:
        taken.remove(address)
        lazy.cuMemFree(address)

    @ctypes.CFUNCTYPE(None)
    def empty() -> None:
        emptied.append(1)

    names = ("gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache")
    functions = (allocate, free, empty)
    addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in functions]
    session = _session(**dict(zip(names, addresses, strict=True)))
    assert session.get_provider_options()[CUDA]["gpu_external_alloc"] == str(addresses[0])
    _run(session, 30)
    assert taken
    held = len(taken)
    for _ in range(3):
        _run(session, 30)
    assert len(taken) <= held + 2
    session.trim()
    assert emptied
    del session
    gc.collect()
    assert not taken


class _Asked:
    """An event that is over; something happens whenever somebody asks."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens = happens

    @property
    def is_done(self) -> bool:
        self._happens()
        return True


def test_free_blocks_change_while_the_driver_is_asked() -> None:
    """The collector may run then, and give blocks back: their neighbours become one with them."""
    free = FreeSpans(is_host=True)
    first, second = FreeSpan(0, 256, 0), FreeSpan(256, 256, 0)

    def joined() -> None:
        for span in (first, second):
            if span in free._bins.get(256, []):
                free.remove(span)
        free.put(FreeSpan(0, 512, 0))
        free.tidy()

    for span in (first, second):
        free.put(span)
    second.events = [(None, _Asked(joined))]  # type: ignore[list-item]
    assert free.of_size(256, None) is None
    found = free.best(256, None)
    assert found is not None and found.size == 512
