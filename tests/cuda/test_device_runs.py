"""Runs with feeds and results on a device: no copies, any stream, memory of the caller."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.named_memory import memory_kind
from sardonyx.base import errors
from sardonyx.cuda.driver.device import device
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of
from tests.support.tolerances import assert_near

CUDA = "CUDAExecutionProvider"
_TEXT = """g (float[N,M] x, float[M,8] w) => (float[N,8] y, float[N,8] z)
    { a = MatMul(x, w) y = Softmax<axis=-1>(a) z = Add(y, a) }"""
_NONZERO = "g (float[N,M] x) => (int64[A,B] y) { y = NonZero(x) }"
_UNIQUE = """g (float[N] x) => (float[A] y, int64[B] i, int64[C] group, int64[D] counts)
    { y, i, group, counts = Unique(x) }"""
_LOOP = """g (float[N] x, int64 n) => (float[N] y) { y = Loop(n, , x) <body = b
    (int64 i, bool c, float[N] s) => (bool d, float[N] t) { d = Identity(c) t = Tanh(s) }> }"""
_ADD = "g (float[N] x, float[N] w) => (float[N] y) { y = Add(x, w) }"
_TAKE = "g (float[N] x, int64[M] i) => (float[M] y) { y = Gather(x, i) }"
_random = np.random.default_rng(11)


def _session(text: str = _TEXT, options: Any = None, **provider: Any) -> ort.InferenceSession:
    model = model_of(text).SerializeToString()
    return ort.InferenceSession(model, options, providers=[(CUDA, provider)])


def _feeds(rows: int = 4, inner: int = 5) -> dict[str, Any]:
    # Few bits, so that products are exact in any precision that a device may choose.
    return {
        "x": (_random.integers(-8, 9, (rows, inner)) / 4).astype(np.float32),
        "w": (_random.integers(-8, 9, (inner, 8)) / 4).astype(np.float32),
    }


def _expected(feeds: dict[str, Any]) -> list[Any]:
    product = feeds["x"].astype(np.float64) @ feeds["w"]
    weights = np.exp(product - product.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return [weights, weights + product]


def _check(found: Any, feeds: dict[str, Any]) -> None:
    for mine, wanted in zip(found, _expected(feeds), strict=True):
        assert_near(mine, wanted, "float: products")


def _on_device(feeds: dict[str, Any]) -> dict[str, ort.OrtValue]:
    return {n: ort.OrtValue.ortvalue_from_numpy(a, "cuda", 0) for n, a in feeds.items()}


def _left() -> ort.RunOptions:
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    return options


def _vector(*values: ort.OrtValue) -> Any:
    found = ort.capi._pybind_state.OrtValueVector()
    found.push_back_batch(values)
    return found


@pytest.mark.parametrize("provider", [CUDA, "CPUExecutionProvider"])
@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize(
    ("names", "devices"),
    [(["y"], ["cpu"]), (["y"], ["cuda"]), (["z", "y"], ["cpu", "cuda"]), (["a"], ["cuda"]),
     (["a", "y"], ["cuda", "cpu"]), ([], ["cuda", "cpu"])],
)  # fmt: skip
def test_vectors_of_values_lie_where_they_are_wanted(
    gpu: FakeDriver | None, provider: str, leaves: bool, names: list[str], devices: list[str]
) -> None:
    session = ort.InferenceSession(model_of(_TEXT).SerializeToString(), providers=[provider])
    feeds, options = _feeds(), _left() if leaves else None
    given = [ort.OrtValue.ortvalue_from_numpy(feeds[name]) for name in "xw"]
    places = [ort.OrtDevice.make(device, 0) for device in devices]
    wanted = session.run(names, feeds)
    zeros = [np.zeros_like(array) for array in wanted]
    there = map(ort.OrtValue.ortvalue_from_numpy, zeros, devices)
    for fetches, where in ((_vector(), places), (_vector(*there), places), (_vector(), devices)):
        before = list(fetches)
        session.run_with_ortvaluevector(options, ["x", "w"], given, names, fetches, where)
        assert [value.device_name() for value in fetches] == devices
        for value, array, held in zip(fetches, wanted, before or fetches, strict=True):
            np.testing.assert_array_equal(value.numpy(), array)
            assert value.data_ptr() == held.data_ptr()


@pytest.mark.parametrize(
    ("feeds", "names", "fetches", "devices", "said"),
    [
        (1, ["y"], 0, 1, "feed names. Expected 2, got 1"),
        (3, ["y"], 0, 1, "feed names. Expected 2, got 3"),
        (2, ["y", "z"], 0, 1, "fetch names. Expected 2, got 1"),
        (2, ["y"], 0, 0, "fetch names. Expected 1, got 0"),
        (2, [], 0, 1, "fetch names. Expected 2, got 1"),
        (2, ["y"], 2, 1, "fetch names. Expected 1, got 2"),
    ],
)
def test_lists_that_belong_together(
    gpu: FakeDriver | None, feeds: int, names: list[str], fetches: int, devices: int, said: str
) -> None:
    value, device = ort.OrtValue.ortvalue_from_numpy(_feeds()["x"]), ort.OrtDevice.make("cpu", 0)
    with pytest.raises(errors.InvalidArgument, match=said):
        _session().run_with_ortvaluevector(
            None, ["x", "w"], [value] * feeds, names, _vector(*[value] * fetches),
            [device] * devices,
        )  # fmt: skip


class Foreign:
    """An array of another library, on the memory of a value."""

    def __init__(self, value: ort.OrtValue) -> None:
        self._value = value
        self.streams: list[Any] = []

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        self.streams.append(stream)
        return self._value.__dlpack__(stream=stream, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._value.__dlpack_device__()


# -- sizes from data ---------------------------------------------------------------------------


def test_outputs_whose_shapes_are_known_before_others(gpu: FakeDriver | None) -> None:
    session = _session(_UNIQUE)
    for values in ([2, 1, 1, 3, 4, 3], [5], [1, 1]):
        x = np.array(values, np.float32)
        wanted = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        for mine, theirs in zip(session.run(None, {"x": x}), wanted, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_random_numbers_are_those_of_the_processor(gpu: FakeDriver | None) -> None:
    text = """g (float[N,M] x) => (float[N,M] y, float[N,M] z) { u = RandomUniformLike<seed=3.0>(x)
        v = RandomNormalLike<seed=4.0>(x) y = Add(u, v) z = Bernoulli<seed=5.0>(u) }"""
    here = ort.InferenceSession(model_of(text).SerializeToString())
    there = _session(text)
    assert there.get_providers()[0] == CUDA
    x = np.zeros((30, 7), np.float32)
    last = x
    for _ in range(3):
        for mine, theirs in zip(there.run(None, {"x": x}), here.run(None, {"x": x}), strict=True):
            assert_near(mine, theirs, "float: functions near zero")
        assert not np.array_equal(mine, last)
        last = mine


# -- feeds and results ----------------------------------------------------------------------------


def test_feeds_of_any_kind_give_the_same(gpu: FakeDriver | None) -> None:
    session = _session()
    for rows in (4, 4, 1, 70):
        feeds = _feeds(rows)
        held = _on_device(feeds)
        _check(session.run(None, feeds), feeds)
        _check(session.run(None, held), feeds)
        _check(session.run(None, {"x": Foreign(held["x"]), "w": feeds["w"]}), feeds)
        found = session.run_with_ort_values(None, held)
        assert {v.device_name() for v in found} == {"cuda"}
        _check([v.numpy() for v in found], feeds)
    (second,) = session.run(["z"], held)
    assert_near(second, _expected(feeds)[1], "float: products")
    (only,) = session.run_with_ort_values(["z"], held)
    assert_near(only.numpy(), _expected(feeds)[1], "float: products")


def test_what_lies_on_the_device_is_not_copied(lazy: FakeDriver) -> None:
    session, feeds = _session(), _feeds(50, 60)
    held = _on_device(feeds)
    session.run_with_ort_values(None, held)
    session.run_with_ort_values(None, held)
    lazy.copied.clear()
    found = session.run_with_ort_values(None, held)
    # The table of arguments of the graph alone.
    assert set(lazy.copied) <= {"pinned, device"}
    assert sum(lazy.copied.values()) < 2000
    _check([v.numpy() for v in found], feeds)
    lazy.copied.clear()
    session.run(["z"], held)
    assert lazy.copied["device, pinned"] == 50 * 8 * 4


def test_calls_give_what_they_take(gpu: FakeDriver | None) -> None:
    session, feeds = _session(), _feeds()
    held = _on_device(feeds)
    given = session(held["x"], held["w"])
    assert all(isinstance(v, ort.OrtValue) and v.device_name() == "cuda" for v in given)
    _check([v.numpy() for v in given], feeds)
    plain = session(**feeds)
    assert all(isinstance(v, np.ndarray) for v in plain)
    _check(plain, feeds)


@pytest.mark.parametrize("text", [_NONZERO, _LOOP])
def test_plans_with_sizes_of_the_data(gpu: FakeDriver | None, text: str) -> None:
    session = _session(text)
    x = (_random.random((6, 7)) < 0.4).astype(np.float32)
    feeds: dict[str, Any] = {"x": x} if text is _NONZERO else {"x": x[0], "n": np.array(3)}
    for _ in range(2):
        wanted = session.run(None, feeds)[0]
        (found,) = session.run_with_ort_values(None, _on_device(feeds))
        assert found.device_name() == "cuda"
        assert np.array_equal(found.numpy(), wanted)
    expected = np.array(np.nonzero(x)) if text is _NONZERO else np.tanh(np.tanh(np.tanh(x[0])))
    assert_near(wanted, expected, "float: functions")


def test_the_streams_of_other_libraries_are_waited_for(gpu: FakeDriver | None) -> None:
    session, feeds = _session(), _feeds()
    held = _on_device(feeds)
    x = Foreign(held["x"])
    session.run(None, {"x": x, "w": held["w"]})
    # First without any waiting, to learn where it lies; then by the stream of the run.
    assert x.streams[0] == -1
    assert x.streams[1] > 2
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_input("w", held["w"])
    binding.bind_output("z", "cuda")
    x.streams.clear()
    for _ in range(2):
        session.run_with_iobinding(binding)
    assert len(set(x.streams)) == 1


# -- bindings -------------------------------------------------------------------------------------


def test_bound_memory_is_written_in_place(gpu: FakeDriver | None) -> None:
    session, feeds = _session(), _feeds()
    held = _on_device(feeds)
    target = ort.OrtValue.ortvalue_from_shape_and_type([4, 8], np.float32, "cuda", 0)
    binding = session.io_binding()
    x = held["x"]
    binding.bind_input("x", "cuda", 0, np.float32, x.shape(), x.data_ptr())
    binding.bind_ortvalue_input("w", held["w"])
    binding.bind_output("y", "cuda", 0, np.float32, [4, 8], target.data_ptr())
    binding.bind_output("z", "cuda")
    for _ in range(4):
        feeds["x"] = feeds["x"] + np.float32(1)
        x.update_inplace(feeds["x"])
        binding.synchronize_inputs()
        session.run_with_iobinding(binding)
        y, z = binding.get_outputs()
        assert y.data_ptr() == target.data_ptr()
        assert (z.device_name(), z.shape()) == ("cuda", [4, 8])
        _check(binding.copy_outputs_to_cpu(), feeds)
        assert_near(target.numpy(), _expected(feeds)[0], "float: products")
    binding.clear_binding_outputs()
    assert binding.get_outputs() == []
    with pytest.raises(errors.InvalidArgument, match="No output is bound"):
        session.run_with_iobinding(binding)
    binding.clear_binding_inputs()
    binding.bind_output("y")
    with pytest.raises(errors.InvalidArgument, match="not bound"):
        session.run_with_iobinding(binding)


def test_memory_may_begin_anywhere(gpu: FakeDriver | None) -> None:
    """Kernels move 16 bytes at once: what begins at another address is moved before or after."""
    session, feeds = _session(), _feeds(4, 8)
    flat = np.concatenate([np.zeros(1, np.float32), feeds["x"].reshape(-1)])
    held = ort.OrtValue.ortvalue_from_numpy(flat, "cuda", 0)
    result = ort.OrtValue.ortvalue_from_shape_and_type([4 * 8 + 1], np.float32, "cuda", 0)
    binding = session.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, (4, 8), held.data_ptr() + 4)
    binding.bind_cpu_input("w", feeds["w"])
    binding.bind_output("y", "cuda", 0, np.float32, (4, 8), result.data_ptr() + 4)
    binding.bind_output("z")
    for _ in range(3):
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        found = result.numpy()[1:].reshape(4, 8)
        assert_near(found, _expected(feeds)[0], "float: products")


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_memory_may_be_larger_than_the_output(gpu: FakeDriver | None, device: str) -> None:
    session, feeds = _session(), _feeds(3)
    target = ort.OrtValue.ortvalue_from_shape_and_type([10, 8], np.float32, device, 0)
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    binding.bind_ortvalue_output("y", target)
    session.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    assert (y.shape(), y.data_ptr()) == ([3, 8], target.data_ptr())
    assert_near(y.numpy(), _expected(feeds)[0], "float: products")
    binding.bind_cpu_input("x", _feeds(11)["x"])
    with pytest.raises(errors.InvalidArgument, match="does not fit"):
        session.run_with_iobinding(binding)
    feeds["x"] = _feeds(10)["x"]
    binding.bind_cpu_input("x", feeds["x"])
    session.run_with_iobinding(binding)
    assert_near(target.numpy(), _expected(feeds)[0], "float: products")


def test_a_feed_may_be_an_output_of_the_same_run(gpu: FakeDriver | None) -> None:
    session = _session(_TAKE)
    x = np.arange(5000, dtype=np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_cpu_input("i", np.arange(5000)[::-1].copy())
    binding.bind_ortvalue_output("y", value)
    for times in range(1, 4):
        session.run_with_iobinding(binding)
        assert np.array_equal(value.numpy(), x[::-1] if times % 2 else x)


def test_outputs_in_one_memory_are_refused(gpu: FakeDriver | None) -> None:
    session, feeds = _session(), _feeds()
    target = ort.OrtValue.ortvalue_from_shape_and_type([4, 8], np.float32, "cuda", 0)
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    for name in "yz":
        binding.bind_ortvalue_output(name, target)
    with pytest.raises(errors.InvalidArgument, match="output z.*is that of output 'y', too"):
        session.run_with_iobinding(binding)
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)
    _check([binding.get_outputs()[0].numpy(), target.numpy()], feeds)


def test_results_in_memory_of_the_host(gpu: FakeDriver | None) -> None:
    session, feeds = _session(), _feeds()
    plain = np.empty((4, 8), np.float32)
    turned = np.empty((8, 4), np.float32).T
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("y", "cpu", 0, np.float32, [4, 8], plain.ctypes.data)
    binding.bind_ortvalue_output("z", ort.OrtValue.ortvalue_from_numpy(turned))
    session.run_with_iobinding(binding)
    _check([plain, turned], feeds)


# -- streams --------------------------------------------------------------------------------------


class Stream:
    """As `cuda.core` has them."""

    def __init__(self) -> None:
        self._stream = ort.get_ep_devices()[1].create_sync_stream()

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._stream.get_handle())


def test_streams_of_the_caller(gpu: FakeDriver | None) -> None:
    stream, feeds = Stream(), _feeds()
    handle = stream.__cuda_stream__()[1]
    session = _session()
    for given in (stream, handle, str(handle), stream._stream, 0):
        place = handle if given else 0
        work = gpu.placed[place].total() if gpu is not None else 0
        _check(session.run(None, feeds, stream=given), feeds)
        assert gpu is None or gpu.placed[place].total() > work
    with pytest.raises(errors.InvalidArgument, match="no stream"):
        session.run(None, feeds, stream="the first")
    own = _session(user_compute_stream=str(handle))
    options = own.get_provider_options()[CUDA]
    assert options["user_compute_stream"] == str(handle)
    assert options["has_user_compute_stream"] == "1"
    work = gpu.placed[handle].total() if gpu is not None else 0
    _check(own.run(None, feeds), feeds)
    assert gpu is None or gpu.placed[handle].total() > work
    host = ort.InferenceSession(model_of(_ADD).SerializeToString())
    with pytest.raises(errors.InvalidArgument, match="no streams"):
        host.run(None, {n: np.ones(2, np.float32) for n in "xw"}, stream=stream)


def test_nobody_waits_for_a_run_that_is_left(lazy: FakeDriver) -> None:
    session, feeds = _session(), _feeds()
    held = _on_device(feeds)
    session.run_with_ort_values(None, held)
    stream = Stream()
    handle = stream.__cuda_stream__()[1]
    found = session.run_with_ort_values(None, held, _left(), stream=stream)
    assert lazy.queues[handle]  # nothing has happened yet
    _check([v.numpy() for v in found], feeds)
    assert not lazy.queues[handle]


@pytest.mark.parametrize("streams", [1, 3])
def test_chains_of_runs_that_are_left(gpu: FakeDriver | None, streams: int) -> None:
    session = _session(_ADD)
    queues = [Stream() for _ in range(streams)]
    one = np.ones(1000, np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(one, "cuda", 0)
    for step in range(20):
        feeds = {"x": value, "w": ort.OrtValue.ortvalue_from_numpy(one * step)}
        queue = queues[step % streams]
        (value,) = session.run_with_ort_values(None, feeds, _left(), stream=queue)
    assert np.array_equal(value.numpy(), one * (1 + sum(range(20))))
    assert session.memory()["frames"] <= streams + 1


def test_results_that_are_let_go_of_are_not_overwritten_early(gpu: FakeDriver | None) -> None:
    session = _session(_ADD)
    first, second = Stream(), Stream()
    one = np.ones(300, np.float32)
    for _ in range(10):
        w = ort.OrtValue.ortvalue_from_numpy(one, "cuda", 0)
        feeds = {"x": ort.OrtValue.ortvalue_from_numpy(one, "cuda", 0), "w": w}
        (y,) = session.run_with_ort_values(None, feeds, _left(), stream=first)
        (z,) = session.run_with_ort_values(None, {"x": y, "w": w}, _left(), stream=second)
        del y, w, feeds
        other = ort.OrtValue.ortvalue_from_numpy(one * 99, "cuda", 0)
        assert np.array_equal(z.numpy(), one * 3)
        assert np.array_equal(other.numpy(), one * 99)


def test_a_feed_is_not_overwritten_before_it_is_read(gpu: FakeDriver | None) -> None:
    session = _session(_ADD)
    one = np.ones(300, np.float32)
    x, w = (ort.OrtValue.ortvalue_from_numpy(one, "cuda", 0) for _ in range(2))
    for step in range(5):
        (y,) = session.run_with_ort_values(None, {"x": x, "w": w}, _left(), stream=Stream())
        x.update_inplace(one * (step + 2))
        assert np.array_equal(y.numpy(), one * (step + 2))


def test_larger_memory_is_waited_for_by_all_who_have_it(gpu: FakeDriver | None) -> None:
    session = _session(_ADD)
    one = np.ones(300, np.float32)
    target = ort.OrtValue.ortvalue_from_shape_and_type([1000], np.float32, "cuda", 0)
    binding = session.io_binding()
    for name in "xw":
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(one, "cuda", 0))
    binding.bind_ortvalue_output("y", target)
    for _ in range(4):
        target.update_inplace(np.zeros(1000, np.float32))
        session.run_with_iobinding(binding, _left(), stream=Stream())
        assert np.array_equal(target.numpy()[:300], one * 2)


def test_a_binding_that_is_repeated_may_be_changed(gpu: FakeDriver | None) -> None:
    session, feeds = _session(), _feeds()
    held = _on_device(feeds)
    binding = session.io_binding()
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
    made = ort.OrtValue.ortvalue_from_shape_and_type
    targets = [made([4, 8], np.float32, "cuda", 0) for _ in range(2)]
    for name, target in zip("yz", targets, strict=True):
        binding.bind_ortvalue_output(name, target)
    for step in range(9):
        if step == 5:
            held["x"] = ort.OrtValue.ortvalue_from_numpy(feeds["x"], "cuda", 0)
            binding.bind_ortvalue_input("x", held["x"])
        if step == 7:
            session.run(None, _feeds(9))  # another run in the same frame
            session.release_captured_graph(0)
        feeds["x"] = feeds["x"] + np.float32(0.25)
        held["x"].update_inplace(feeds["x"])
        session.run_with_iobinding(binding)
        _check([t.numpy() for t in targets], feeds)


def test_bindings_that_are_left_fill_memory_of_the_host(gpu: FakeDriver | None) -> None:
    session, feeds = _session(), _feeds()
    pinned = ort.OrtMemoryInfo(
        "CudaPinned", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.CPU
    )
    target = ort.OrtValue.ortvalue_from_shape_and_type([4, 8], np.float32, memory_info=pinned)
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_cpu_input(name, array)
    binding.bind_ortvalue_output("y", target)
    binding.bind_output("z", "cpu")
    for _ in range(3):
        session.run_with_iobinding(binding, _left())
    binding.synchronize_outputs()
    _check([target.numpy(), binding.get_outputs()[1].numpy()], feeds)
    _check(binding.copy_outputs_to_cpu(), feeds)


def test_faults_of_runs_that_were_left_come_when_somebody_waits(gpu: FakeDriver | None) -> None:
    session = _session(_TAKE)
    x = np.arange(5, dtype=np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("i", np.array([1, 9]))
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding, _left())
    with pytest.raises(errors.RuntimeException, match="index 9 is out of range"):
        binding.synchronize_outputs()
    binding.synchronize_outputs()
    assert session.run(None, {"x": x, "i": np.array([1, 4])})[0].tolist() == [1, 4]


def test_several_threads_in_several_streams(gpu: FakeDriver | None) -> None:
    session = _session()
    session.run(None, _feeds())
    wrong: list[Any] = []
    lock = threading.Lock()

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        stream = Stream()
        for step in range(12):
            shape = (int(random.integers(1, 20)), 5)
            feeds = {**_feeds(), "x": (random.integers(-8, 9, shape) / 4).astype(np.float32)}
            with lock if gpu is not None else threading.Lock():  # the host's driver has no locks
                held = _on_device(feeds)
                found = session.run_with_ort_values(
                    None, held, _left() if step % 2 else None, stream=stream
                )
                given = [v.numpy() for v in found]
            try:
                _check(given, feeds)
            except AssertionError as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- what does not fit ----------------------------------------------------------------------------


def test_feeds_that_do_not_fit(gpu: FakeDriver | None) -> None:
    session, feeds = _session(), _feeds()
    held = _on_device(feeds)
    wrong = [
        (feeds["x"].astype(np.float64), "wrong element type"),
        (feeds["x"][None], "wrong rank"),
        (feeds["x"][:, :3], "M"),
    ]
    for array, text in wrong:
        value = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), "cuda", 0)
        with pytest.raises(errors.InvalidArgument, match=text):
            session.run(None, {**held, "x": value})
        _check(session.run(None, held), feeds)


def test_a_feed_on_another_device(lazy: FakeDriver) -> None:
    lazy.devices = 2
    session, feeds = _session(), _feeds()
    held = _on_device(feeds)
    other = ort.OrtValue.ortvalue_from_numpy(feeds["x"], "cuda", 1)
    assert other.__dlpack_device__() == (2, 1)
    with pytest.raises(errors.InvalidArgument, match="another device.*device 0, got device 1"):
        session.run(None, {**held, "x": other})
    held["x"].update_inplace(other)
    _check(session.run(None, held), feeds)


def test_memory_that_was_freed(lazy: FakeDriver) -> None:
    device(0).enter()
    session, feeds = _session(), _feeds()
    held = _on_device(feeds)
    _, address = lazy.cuMemAlloc(80)
    binding = session.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, [4, 5], address)
    binding.bind_ortvalue_input("w", held["w"])
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    lazy.cuMemFree(address)
    with pytest.raises(errors.InvalidArgument, match="Was it freed"):
        session.run_with_iobinding(binding)
    binding.bind_ortvalue_input("x", held["x"])
    session.run_with_iobinding(binding)
    with pytest.raises(errors.InvalidArgument, match="Was it freed"):
        binding.bind_input("x", "cuda", 0, np.float32, [4, 5], address)


def test_a_session_of_the_processor_takes_values_of_devices(gpu: FakeDriver | None) -> None:
    session = ort.InferenceSession(model_of(_TEXT).SerializeToString())
    feeds = _feeds()
    held = _on_device(feeds)
    _check(session.run(None, held), feeds)
    _check([v.numpy() for v in session.run_with_ort_values(None, held)], feeds)
    binding = session.io_binding()
    for name, value in held.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y", "cuda")
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    assert [v.device_name() for v in binding.get_outputs()] == ["cuda", "cpu"]
    _check(binding.copy_outputs_to_cpu(), feeds)


# -- as the documents of users have it ------------------------------------------------------------


def test_the_example_of_graphs(gpu: FakeDriver | None) -> None:
    """From the page of the CUDA provider, with a model made here."""
    text = "g (float[3,2] X, float[2,1] W) => (float[3,1] Y) { Y = MatMul(X, W) }"
    weights = np.array([[1.0], [2.0]], np.float32)
    text = text.replace(", float[2,1] W", "")
    model = model_of(text, {"W": weights}).SerializeToString()
    providers = [(CUDA, {"enable_cuda_graph": True})]
    x = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=np.float32)
    y = np.array([[0.0], [0.0], [0.0]], dtype=np.float32)
    x_ortvalue = ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)
    y_ortvalue = ort.OrtValue.ortvalue_from_numpy(y, "cuda", 0)
    session = ort.InferenceSession(model, providers=providers)
    assert session.get_provider_options()[CUDA]["enable_cuda_graph"] == "1"
    io_binding = session.io_binding()
    io_binding.bind_ortvalue_input("X", x_ortvalue)
    io_binding.bind_ortvalue_output("Y", y_ortvalue)
    session.run_with_iobinding(io_binding)
    expected_y = np.array([[5.0], [11.0], [17.0]], dtype=np.float32)
    assert_near(expected_y, y_ortvalue.numpy(), "float: sums")
    session.run_with_iobinding(io_binding)
    assert_near(expected_y, y_ortvalue.numpy(), "float: sums")
    x_ortvalue.update_inplace(x * 10)
    session.run_with_iobinding(io_binding)
    assert_near(expected_y * 10, y_ortvalue.numpy(), "float: sums")


def test_the_stream_of_set_providers(gpu: FakeDriver | None) -> None:
    """From the page of device tensors, on the CUDA provider."""
    sess = ort.InferenceSession(model_of(_TEXT).SerializeToString(), providers=[CUDA])
    option = {}
    s = Stream()
    option["user_compute_stream"] = str(s.__cuda_stream__()[1])
    sess.set_providers([CUDA], [option])
    feeds = _feeds()
    _check(sess.run(None, feeds), feeds)
    if gpu is not None:
        assert gpu.placed[s.__cuda_stream__()[1]]["launch"] == gpu.launches > 0


def test_bindings_that_are_gone_keep_nothing(lazy: FakeDriver) -> None:
    session, feeds = _session(), _feeds()
    binding = session.io_binding()
    for name, value in _on_device(feeds).items():
        binding.bind_ortvalue_input(name, value)
    made = ort.OrtValue.ortvalue_from_shape_and_type
    for name in "yz":
        binding.bind_ortvalue_output(name, made([4, 8], np.float32, "cuda", 0))
    for _ in range(4):
        session.run_with_iobinding(binding)
    assert lazy.replays
    arena = memory_kind("cuda").arena
    assert arena.statistics()["used_bytes"] > 0
    del binding, value
    assert arena.statistics()["used_bytes"] == 0
