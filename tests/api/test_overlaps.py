"""Memory of outputs that overlaps: refused by name where a result would be lost, else right."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.ortvalue_vector import OrtValueVector
from sardonyx.base import errors
from tests.support.session import model_of

_TWO = "g (float[N] x) => (float[N] y, float[N] z) { y = Neg(x) z = Mul(x, x) }"
_X = np.arange(1, 9, dtype=np.float32)
_Y, _Z = -_X, _X * _X


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    return ort.InferenceSession(model_of(_TWO).SerializeToString())


def _value(array: Any) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(array)


Run = Callable[[ort.InferenceSession, Any, Any], Any]


def _bind(session: ort.InferenceSession, y: Any, z: Any, *, address: bool = False) -> None:
    binding = session.io_binding()
    binding.bind_cpu_input("x", _X)
    for name, place in (("y", y), ("z", z)):
        if address:
            binding.bind_output(name, "cpu", 0, np.float32, [8], place.ctypes.data)
        else:
            binding.bind_ortvalue_output(name, _value(place))
    for _ in range(2):  # the second run takes a shorter way
        session.run_with_iobinding(binding)


def _call_back(session: ort.InferenceSession, y: Any, z: Any) -> None:
    told, said = threading.Event(), list[str]()

    def tell(_results: Any, _data: Any, text: str) -> None:
        said.append(text)
        told.set()

    session.run_async(None, {"x": _X}, tell, out=[y, z])
    assert told.wait(60)
    if said[0]:
        raise errors.InvalidArgument(said[0])


def _into_vector(session: ort.InferenceSession, y: Any, z: Any) -> None:
    fetches = OrtValueVector([_value(y), _value(z)])
    session.run_with_ortvaluevector(None, ["x"], [_value(_X)], ["y", "z"], fetches, ["cpu", "cpu"])


RUNS: dict[str, Run] = {
    "run": lambda s, y, z: s.run(None, {"x": _X}, out=[y, z]),
    "run, names": lambda s, y, z: s.run(["z", "y"], {"x": _X}, out=[z, y]),
    "run, values": lambda s, y, z: s.run(None, {"x": _X}, out=[_value(y), _value(z)]),
    "run, DLPack": lambda s, y, z: s.run(None, {"x": _X}, out=[_Foreign(y), _Foreign(z)]),
    "awaited": lambda s, y, z: asyncio.run(s.run_async({"x": _X}, out=[y, z])),
    "callback": _call_back,
    "pipeline": lambda s, y, z: list(s.pipeline().map([_X], into=[(y, z)])),
    "vector": _into_vector,
    "binding": _bind,
    "addresses": lambda s, y, z: _bind(s, y, z, address=True),
}


class _Foreign:
    """An array of another library."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def _parts(first: int, second: int) -> Callable[[], tuple[Any, Any]]:
    def parts() -> tuple[Any, Any]:
        memory = np.zeros(32, np.float32)
        return memory[first : first + 8], memory[second : second + 8]

    return parts


#: Memory for y and z, and whether their elements are apart.
PLACES: dict[str, tuple[Callable[[], tuple[Any, Any]], bool]] = {
    "one": (_parts(0, 0), False),
    "overlapping": (_parts(0, 7), False),
    "overlapping, the other way": (_parts(9, 4), False),
    "side by side": (_parts(0, 8), True),
    "side by side, the other way": (_parts(16, 8), True),
}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("way", RUNS)
def test_two_outputs(session: ort.InferenceSession, way: str, places: str) -> None:
    make, are_apart = PLACES[places]
    y, z = make()
    if are_apart:
        RUNS[way](session, y, z)
        np.testing.assert_array_equal(y, _Y)
        np.testing.assert_array_equal(z, _Z)
        return
    with pytest.raises(errors.InvalidArgument, match=r"output (y.*'z'|z.*'y')"):
        RUNS[way](session, y, z)
    assert not y.any() and not z.any()


def _steps(*steps: slice) -> tuple[Any, Any]:
    memory = np.zeros(32, np.float32)
    return memory[steps[0]], memory[steps[1]]


STEPS = {
    "between each other": (slice(0, 16, 2), slice(1, 17, 2), True),
    "one reversed": (slice(0, 8), slice(15, 7, -1), True),
    "one reversed over the other": (slice(0, 8), slice(12, 4, -1), False),
    "in steps that meet": (slice(0, 16, 2), slice(0, 24, 3), False),
}


@pytest.mark.parametrize("name", STEPS)
def test_views_in_steps(session: ort.InferenceSession, name: str) -> None:
    first, second, are_apart = STEPS[name]
    y, z = _steps(first, second)
    if not are_apart:
        with pytest.raises(errors.InvalidArgument, match="overlap"):
            session.run(None, {"x": _X}, out=[y, z])
        return
    session.run(None, {"x": _X}, out=[y, z])
    np.testing.assert_array_equal(y, _Y)
    np.testing.assert_array_equal(z, _Z)


def test_columns_of_one_image() -> None:
    plane = ort.InferenceSession(model_of(_TWO.replace("[N]", "[N,M]")).SerializeToString())
    x, image = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 6), np.float32)
    plane.run(None, {"x": x}, out=[image[:, :3], image[:, 3:]])
    np.testing.assert_array_equal(image, np.concatenate([-x, x * x], 1))


def test_an_array_that_overlaps_itself(session: ort.InferenceSession) -> None:
    memory = np.zeros(12, np.float32)
    repeated = np.lib.stride_tricks.as_strided(memory, (8,), (0,))
    with pytest.raises(errors.InvalidArgument, match="output y.*one place"):
        session.run(["y"], {"x": _X}, out=[repeated])
    windows = np.lib.stride_tricks.as_strided(memory, (4, 3), (4, 4))
    other = ort.InferenceSession(model_of(_TWO.replace("[N]", "[N,M]")).SerializeToString())
    with pytest.raises(errors.InvalidArgument, match="output y.*one place"):
        other.run(["y"], {"x": np.ones((4, 3), np.float32)}, out=[windows])


def test_an_output_that_is_asked_for_twice_is_written_twice(session: ort.InferenceSession) -> None:
    first, second = np.zeros((2, 8), np.float32)
    found = session.run(["y", "z", "y"], {"x": _X}, out=[first, None, second])
    for y in (first, second, found[0], found[2]):
        np.testing.assert_array_equal(y, _Y)
    np.testing.assert_array_equal(found[1], _Z)
    found = session.run(["y", "y"], {"x": _X}, out=[first, None])
    assert found[0] is first
    np.testing.assert_array_equal(found[1], _Y)
    assert not np.shares_memory(*found)
    session.run(["y", "y"], {"x": _X}, out=[second, second])  # the same twice, in one place
    np.testing.assert_array_equal(second, _Y)


@pytest.mark.parametrize("shift", [0, 3])
@pytest.mark.parametrize("way", ["run", "awaited", "binding", "pipeline", "vector"])
def test_an_output_over_a_feed(session: ort.InferenceSession, way: str, shift: int) -> None:
    """The feed is read first, in whatever way the run is done."""
    memory, z = np.zeros(16, np.float32), np.zeros(8, np.float32)
    x, y = memory[:8], memory[shift : shift + 8]
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", _value(x))
    binding.bind_ortvalue_output("y", _value(y))
    binding.bind_ortvalue_output("z", _value(z))
    vector = OrtValueVector([_value(y), _value(z)])
    ways: dict[str, Callable[[], Any]] = {
        "run": lambda: session.run(None, {"x": x}, out=[y, z]),
        "awaited": lambda: asyncio.run(session.run_async({"x": x}, out=[y, z])),
        "binding": lambda: session.run_with_iobinding(binding),
        "pipeline": lambda: list(session.pipeline().map([x], into=[(y, z)])),
        "vector": lambda: session.run_with_ortvaluevector(
            None, ["x"], [_value(x)], ["y", "z"], vector, ["cpu", "cpu"]
        ),
    }
    for _ in range(3):
        x[:] = _X
        ways[way]()
        np.testing.assert_array_equal(y, _Y)
        np.testing.assert_array_equal(z, _Z)


def test_bindings_may_change_places(session: ort.InferenceSession) -> None:
    """Only what a run finds bound counts."""
    a, b = np.zeros((2, 8), np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", _X)
    for places in ((a, b), (b, a)):
        for name, place in zip("yz", places, strict=True):
            binding.bind_ortvalue_output(name, _value(place))
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(places[0], _Y)
        np.testing.assert_array_equal(places[1], _Z)
