"""Pipelines: rows of runs whose copies and work overlap."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.base import errors
from sardonyx.cuda.memory import row_writer, staging
from sardonyx.cuda.run import copy_streams
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of

PROVIDERS = {"device": "CUDAExecutionProvider", "processor": "CPUExecutionProvider"}
_TEXT = "g (float[N,M] x) => (float[N,M] y) { a = Mul(x, x) y = Add(a, x) }"
_TWO = "g (float[N] x, float[N] w) => (float[N] y, float[N] z) { y = Add(x, w) z = Mul(x, w) }"
_TAKE = "g (float[N] x, int64[M] i) => (float[M] y) { y = Gather(x, i) }"
_random = np.random.default_rng(5)


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest, gpu: FakeDriver | None) -> str:
    return PROVIDERS[request.param]


def _session(text: str, provider: str = PROVIDERS["device"]) -> ort.InferenceSession:
    return ort.InferenceSession(model_of(text).SerializeToString(), providers=[provider])


def _numbers(*shape: int) -> Any:
    return (_random.integers(-8, 9, shape) / 4).astype(np.float32)


@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_results_come_in_order(provider: str, depth: int) -> None:
    session = _session(_TEXT, provider)
    feeds = [_numbers(n % 3 + 1, n % 5 + 1) for n in range(11)]
    taken = []

    def tiles() -> Iterator[Any]:
        for x in feeds:
            taken.append(x)
            yield x

    with session.pipeline(depth) as pipe:
        for _ in range(2):
            for number, y in enumerate(pipe.map(tiles())):
                np.testing.assert_array_equal(y, feeds[number] * feeds[number] + feeds[number])
                assert len(taken) - number <= depth
            taken.clear()


def test_several_inputs_and_outputs(provider: str) -> None:
    session = _session(_TWO, provider)
    feeds = [(_numbers(9), _numbers(9)) for _ in range(4)]
    for given in (feeds, [{"x": x, "w": w} for x, w in feeds]):
        with session.pipeline() as pipe:
            for (y, z), (x, w) in zip(pipe.map(given), feeds, strict=True):
                np.testing.assert_array_equal(y, x + w)
                np.testing.assert_array_equal(z, x * w)


def _image(*shape: int, pinned: bool) -> Any:
    if not pinned:
        return np.zeros(shape, np.float32)
    info = ort.OrtMemoryInfo(
        "CudaPinned", ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    made = ort.OrtValue.ortvalue_from_shape_and_type(list(shape), np.float32, memory_info=info)
    return made.numpy()


@pytest.mark.parametrize("width", [40, 160])
@pytest.mark.parametrize("pinned", [False, True])
def test_tiles_of_images(gpu: FakeDriver | None, pinned: bool, width: int) -> None:
    session = _session("g (float[C,H,W] x) => (float[C,H,W] y) { a = Mul(x, x) y = Add(a, x) }")
    image, result = (_image(3, 16, 4 * width, pinned=pinned) for _ in range(2))
    image[...] = _numbers(*image.shape)
    places = [
        np.s_[:, y : y + 8, x : x + width] for y in (0, 8) for x in range(0, 4 * width, width)
    ]
    before = dict(gpu.copied) if gpu is not None else {}
    with session.pipeline(3) as pipe:
        for place, found in zip(
            places, pipe.map((image[p] for p in places), (result[p] for p in places)), strict=True
        ):
            np.testing.assert_array_equal(found, result[place])
    np.testing.assert_array_equal(result, image * image + image)
    if gpu is not None:
        copied = {k: n - before.get(k, 0) for k, n in gpu.copied.items()}
        assert copied["device, pinned"] == image.nbytes  # straight to the result, or staged once
        assert copied.get("device, host", 0) == 0


@pytest.mark.parametrize(
    ("shape", "place", "by_kernel"),
    [
        ((3, 64, 64), np.s_[:, 10:50, 16:48], True),
        ((1, 3, 1, 50, 64), np.s_[:, :, :, :40, 32:], True),
        ((40, 64), np.s_[:, :32], True),
        ((2, 20, 3, 32), np.s_[:, 5:15], True),  # a row goes over two axes
        ((40, 64), np.s_[:, 3:35], False),  # it begins anywhere
        ((40, 64), np.s_[:, :33], False),  # or ends so
        ((2, 3, 40, 64), np.s_[:, :2, :, :32], False),  # too many axes in front of rows
        ((40, 64), np.s_[3:30], False),  # no rows: it is dense
        ((1, 64), np.s_[:, :32], False),
    ],
)
def test_a_kernel_writes_a_part_of_rows(
    gpu: FakeDriver | None,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, ...],
    place: Any,
    by_kernel: bool,
) -> None:
    for holder, name in (
        (staging, "_LEAST_ROW_BYTES"), (row_writer, "_LEAST_ROW_BYTES"),
        (row_writer, "_LEAST_BYTES"),
    ):  # fmt: skip
        monkeypatch.setattr(holder, name, 64)
    written: list[Any] = []
    write = row_writer.write_rows

    def counted(where: Any, rows: Any, *more: Any) -> None:
        written.append(rows)
        write(where, rows, *more)

    monkeypatch.setattr(copy_streams, "write_rows", counted)
    result = _image(*shape, pinned=True)
    names = ",".join("ABCDE"[: len(shape)])
    session = _session(f"g (float[{names}] x) => (float[{names}] y) {{ y = Mul(x, x) }}")
    part = result[place]
    feeds = [_numbers(*part.shape) for _ in range(4)]
    result[...] = 7
    with session.pipeline(3) as pipe:
        for x, y in zip(feeds, pipe.map(feeds, [part] * 4), strict=True):
            assert y.shape == x.shape
    expected = np.full(shape, 7, np.float32)
    expected[place] = feeds[-1] * feeds[-1]
    np.testing.assert_array_equal(result, expected)
    assert len(written) == 4 * by_kernel
    assert all(0 < w.rows * w.blocks * w.width < part.nbytes for w in written)


def test_a_fault_is_raised_where_its_result_is_due(provider: str) -> None:
    session = _session(_TAKE, provider)
    x = _numbers(5)
    rows = [np.array([0]), np.array([5]), np.array([4])]
    with session.pipeline(3) as pipe:
        found = pipe.map((x, i) for i in rows)
        np.testing.assert_array_equal(next(found), x[[0]])
        with pytest.raises((errors.RuntimeException, errors.InvalidArgument)):
            next(found)
    with session.pipeline(2) as pipe:
        (only,) = pipe.map([(x, rows[2])])
        np.testing.assert_array_equal(only, x[[4]])


#: Models whose runs the host waits for: it controls them, or one tensor is two outputs.
WAITED = {
    "host_controlled": "g (float[N] x, int64[M] i) => (int64[A,B] n, float[M] y) "
    "{ n = NonZero(x) y = Gather(x, i) }",
    "twice": "g (float[N] x, int64[M] i) => (float[M] y, float[M] z) "
    "{ y = Gather(x, i) z = Identity(y) }",
}


@pytest.mark.parametrize("name", WAITED)
@pytest.mark.parametrize("is_placed", [False, True])
def test_runs_that_are_waited_for_have_their_own_faults(
    provider: str, name: str, is_placed: bool
) -> None:
    session = _session(WAITED[name], provider)
    x, last = _numbers(5), 0 if name == "twice" else 1
    x[0] = 3
    into = [tuple(_on("cuda", 1) if k == last else None for k in range(2)) for _ in range(3)]
    with session.pipeline(3) as pipe:
        row = pipe.map([(x, np.array([i])) for i in (0, 7, 4)], into if is_placed else None)
        np.testing.assert_array_equal(next(row)[last], [x[0]])
        with pytest.raises((errors.RuntimeException, errors.InvalidArgument), match="7"):
            next(row)
    *_, y = session.run(None, {"x": x, "i": np.array([4])})
    np.testing.assert_array_equal(y, [x[4]])


def test_what_is_left_is_waited_for(provider: str) -> None:
    session = _session(_TEXT, provider)
    with session.pipeline(4) as pipe:
        found = pipe.map(_numbers(3, 3) for _ in range(9))
        next(found)
    x = _numbers(3, 3)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * x + x)


# -- rows of runs ---------------------------------------------------------------------------------


def _square(x: Any) -> Any:
    return x * x + x


def _take_one(pipe: Any, tiles: list[Any]) -> None:
    for y in pipe.map(tiles):
        np.testing.assert_array_equal(y, _square(tiles[0]))
        break


def _keep_one(pipe: Any, tiles: list[Any]) -> Any:
    found = pipe.map(tiles)
    np.testing.assert_array_equal(next(found), _square(tiles[0]))
    return found


def _meet_a_bad_tile(pipe: Any, tiles: list[Any]) -> None:
    bad = [*tiles[:2], np.zeros((2, 2), np.int64), *tiles[2:]]
    with pytest.raises(errors.InvalidArgument, match="element type|type"):
        list(pipe.map(bad))


def _meet_a_bad_place(pipe: Any, tiles: list[Any]) -> None:
    places = [np.empty((2, 3), np.float32), np.empty((1, 1), np.float32)]
    with pytest.raises(errors.InvalidArgument, match="does not fit"):
        list(pipe.map(tiles, places))


def _raise_in_tiles(pipe: Any, tiles: list[Any]) -> None:
    def given() -> Iterator[Any]:
        yield from tiles[:2]
        raise KeyError("no more")

    with pytest.raises(KeyError):
        list(pipe.map(given()))


BEFORE = {
    f.__name__[1:]: f
    for f in (_take_one, _keep_one, _meet_a_bad_tile, _meet_a_bad_place, _raise_in_tiles)
}


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("name", BEFORE)
def test_a_row_has_no_results_of_the_one_before(provider: str, name: str, is_kept: bool) -> None:
    pipe = _session(_TEXT, provider).pipeline(3)
    tiles = [_numbers(2, 3) for _ in range(7)]
    with pipe if is_kept else contextlib.nullcontext():
        first = BEFORE[name](pipe, tiles)
        found = list(pipe.map(tiles[4:]))
        assert len(found) == 3
        for y, x in zip(found, tiles[4:], strict=True):
            np.testing.assert_array_equal(y, _square(x))
        if first is not None:  # it goes on where it was
            for y, x in zip(first, tiles[1:], strict=True):
                np.testing.assert_array_equal(y, _square(x))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_rows_in_turn(provider: str, depth: int) -> None:
    tiles = [[_numbers(2, n + 1) for _ in range(5)] for n in range(2)]
    with _session(_TEXT, provider).pipeline(depth) as pipe:
        rows = [pipe.map(given) for given in tiles]
        for number, found in enumerate(zip(*rows, strict=True)):
            for y, given in zip(found, tiles, strict=True):
                np.testing.assert_array_equal(y, _square(given[number]))


def test_nothing_of_a_row_is_left_out_in_silence(provider: str) -> None:
    tiles = [_numbers(2, 3) for _ in range(5)]
    with _session(_TEXT, provider).pipeline(3) as pipe:
        found = _keep_one(pipe, tiles)
    with pytest.raises(errors.InvalidArgument, match="`with` block has ended"):
        next(found)
    (y,) = pipe.map(tiles[:1])
    np.testing.assert_array_equal(y, _square(tiles[0]))


def test_faults_of_results_that_nobody_takes(provider: str) -> None:
    session = _session(_TAKE, provider)
    x = _numbers(5)
    with session.pipeline(3) as pipe:
        found = pipe.map((x, np.array([i])) for i in (0, 7, 7, 4))
        np.testing.assert_array_equal(next(found), x[[0]])
    np.testing.assert_array_equal(session.run(None, {"x": x, "i": np.array([4])})[0], x[[4]])


def test_runs_overlap_without_a_block_too(lazy: FakeDriver) -> None:
    taken: list[int] = []

    def tiles() -> Iterator[Any]:
        for n in range(5):
            taken.append(n)
            yield _numbers(2, 3)

    pipe = _session(_TEXT).pipeline(3)
    found = pipe.map(tiles())
    next(found)
    assert taken == [0, 1, 2]
    streams = pipe._copy_streams._incoming, pipe._copy_streams._outgoing
    assert len(list(found)) == 4
    assert pipe._copy_streams is None
    assert set(streams) <= set(streams[0].device._spare)


class Foreign:
    """An array of another library, by DLPack alone."""

    def __init__(self, value: ort.OrtValue) -> None:
        self._value = value

    def __dlpack__(self, **options: Any) -> Any:
        return self._value.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._value.__dlpack_device__()


def _on(device: str, size: int) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(np.zeros(size, np.float32), device, 0)


#: What results may be written to, and how it is read.
PLACES: dict[str, tuple[Any, Any]] = {
    "value on the device": (lambda n: _on("cuda", n), lambda v: v.numpy()),
    "value on the host": (lambda n: _on("cpu", n), lambda v: v.numpy()),
    "pinned value": (
        lambda n: ort.OrtValue.ortvalue_from_numpy(_image(n, pinned=True)), lambda v: v.numpy(),
    ),
    "another library's": (lambda n: Foreign(_on("cuda", n)), lambda f: f._value.numpy()),
    "array": (lambda n: np.zeros(n, np.float32), lambda a: a),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("depth", [1, 3])
def test_results_go_where_they_are_wanted(provider: str, name: str, depth: int) -> None:
    make, read = PLACES[name]
    session = _session(_TWO, provider)
    tiles = [(_numbers(6), _numbers(6)) for _ in range(5)]
    into = [(make(6), None) for _ in tiles]
    with session.pipeline(depth) as pipe:
        for (y, z), (x, w), (place, _) in zip(pipe.map(tiles, into), tiles, into, strict=True):
            assert y is place
            np.testing.assert_array_equal(read(place), x + w)
            np.testing.assert_array_equal(z, x * w)


def test_results_stay_on_the_device(lazy: FakeDriver) -> None:
    session = _session(_TEXT)
    tiles = [_numbers(3, 8) for _ in range(4)]
    fed = [ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0) for x in tiles]
    larger = [_on("cuda", 30) for _ in tiles]
    before = dict(lazy.copied)
    with session.pipeline(2) as pipe:
        found = list(pipe.map(fed, larger))
    back = ("device, pinned", "device, host", "device, device")
    assert all(lazy.copied.get(k, 0) == before.get(k, 0) for k in back)
    for y, x, place in zip(found, tiles, larger, strict=True):
        assert y.data_ptr() == place.data_ptr()  # the first part of it
        np.testing.assert_array_equal(y.numpy(), _square(x))


BAD: dict[str, Any] = {
    "depth": lambda s: s.pipeline(0),
    "feeds": lambda s: list(s.pipeline(2).__enter__().map([(_numbers(2), _numbers(2))])),
    "places": lambda s: list(s.pipeline(2).__enter__().map([_numbers(2, 2)] * 2, [_numbers(2, 2)])),
    "place": lambda s: list(s.pipeline(2).__enter__().map([_numbers(2, 2)], [_numbers(1, 2)])),
    "no array": lambda s: list(s.pipeline(2).__enter__().map([_numbers(2, 2)], [[1.0]])),
    "a number": lambda s: list(s.pipeline(2).map([_numbers(2, 2)], [1.0])),
    "read-only": lambda s: list(s.pipeline(2).map([_numbers(2, 2)], [_read_only(2, 2)])),
    "device": lambda s: list(s.pipeline(2).map([_numbers(2, 2)], [_on("cuda", 3)])),
    "places for outputs": lambda s: list(s.pipeline(2).map([_numbers(2, 2)], [(None, None)])),
}


def _read_only(*shape: int) -> Any:
    array = np.zeros(shape, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(provider: str, name: str) -> None:
    session = _session(_TEXT, provider)
    with pytest.raises(errors.InvalidArgument):
        BAD[name](session)
    x = _numbers(3, 3)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * x + x)
