"""Models on a GPU: the same results as on the processor. Without a GPU only what can be asked."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api.providers import cuda_is_missing
from sardonyx.base import errors
from tests.cuda.test_ptx import GRAPHS
from tests.support.fake_driver import FakeDriver
from tests.support.session import model_of
from tests.support.tolerances import assert_near

CUDA = "CUDAExecutionProvider"
_MISSING = cuda_is_missing()
on_a_device = pytest.mark.skipif(bool(_MISSING), reason=f"no GPU here: {_MISSING}")
_random = np.random.default_rng(7)

FEEDS: dict[str, list[dict[str, Any]]] = {
    "perceptron": [{"x": _random.standard_normal((n, 40)).astype(np.float32)} for n in (3, 1, 200)],
    "half floats": [
        {
            "x": _random.standard_normal((n, 64)).astype(np.float16),
            "w": _random.standard_normal((64, k)).astype(np.float16),
        }
        for n, k in ((5, 7), (130, 65), (0, 3))
    ],
    "doubles and rows": [{"x": _random.standard_normal(s)} for s in ((3, 1000), (70, 5), (2, 0))],
    "largest of each row": [
        {"x": _random.standard_normal(s).astype(np.float32)} for s in ((4, 50), (300, 3))
    ],
    "running sums": [{"x": _random.standard_normal((6, 77)).astype(np.float32)}],
    "scattered": [
        {
            "x": _random.standard_normal(20).astype(np.float32),
            "i": _random.integers(-20, 20, 33),
            "u": _random.standard_normal(33).astype(np.float32),
        }
    ],
    "sparse rows": [
        {"b": _random.standard_normal((8, n)).astype(np.float32)} for n in (1, 33, 1000, 0)
    ],
    "what is not zero": [
        {"x": (_random.random(s) < 0.3).astype(np.float32)} for s in ((9, 11), (0, 3), (40, 90))
    ],
    "a loop": [
        {"x": _random.standard_normal(50).astype(np.float32), "n": np.int64(n)} for n in (5, 0, 40)
    ],
}  # fmt: skip


@on_a_device
@pytest.mark.parametrize("name", FEEDS)
def test_equals_the_processor(name: str) -> None:
    model = GRAPHS[name]().SerializeToString()
    here = sardonyx.InferenceSession(model)
    sardonyx.InferenceSession(model, providers=[(CUDA, {"use_tf32": "0"})])
    there = sardonyx.InferenceSession(model, providers=[(CUDA, {"use_tf32": "0"})])
    assert "from cache" in there.timings
    assert there.get_providers() == [CUDA, "CPUExecutionProvider"]
    for feeds in FEEDS[name] * 2:
        for mine, theirs in zip(there.run(None, feeds), here.run(None, feeds), strict=True):
            assert mine.dtype == theirs.dtype
            like = "half: one rounding" if mine.dtype == np.float16 else "float: short sums"
            assert_near(mine, theirs, like)


@on_a_device
def test_faults_name_the_node_and_the_session_goes_on() -> None:
    text = "g (float[N] x, int64[M] i) => (float[M] y) { y = Gather(x, i) }"
    session = sardonyx.InferenceSession(model_of(text).SerializeToString(), providers=[CUDA])
    x = np.arange(5, dtype=np.float32)
    for _ in range(2):
        with pytest.raises(errors.RuntimeException, match="index 9 is out of range"):
            session.run(None, {"x": x, "i": np.array([1, 9])})
        assert session.run(None, {"x": x, "i": np.array([1, 4])})[0].tolist() == [1, 4]


@on_a_device
def test_strings_stay_on_the_processor(caplog: pytest.LogCaptureFixture) -> None:
    text = "g (string[N] x, string[N] y) => (string[N] z) { z = StringConcat(x, y) }"
    model = model_of(text, opset=20).SerializeToString()
    session = sardonyx.InferenceSession(model, providers=[CUDA])
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert "runs on the processor" in caplog.text


@pytest.mark.skipif(not _MISSING, reason="there is a GPU")
def test_without_a_device_values_say_what_is_missing() -> None:
    array = np.ones(3, np.float32)
    made = sardonyx.OrtValue
    for call in (
        lambda: made.ortvalue_from_numpy(array, "cuda", 0),
        lambda: made.ortvalue_from_shape_and_type([3], np.float32, "cuda", 0),
        lambda: made.ortvalue_from_shape_and_type([3], np.float32, "cuda_pinned", 0),
    ):
        with pytest.raises(errors.EPFail, match="cuda-bindings|driver"):
            call()
    assert sardonyx.OrtDevice.make("cuda", 0).device_type() == 1
    assert len(sardonyx.get_ep_devices()) == 1


@pytest.mark.skipif(not _MISSING, reason="there is a GPU")
def test_without_a_device_the_processor_runs_it_with_a_warning() -> None:
    model = GRAPHS["perceptron"]().SerializeToString()
    with pytest.warns(UserWarning, match=CUDA):
        session = sardonyx.InferenceSession(model, providers=[CUDA, "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert sardonyx.get_available_providers() == ["CPUExecutionProvider"]
    assert sardonyx.get_device() == "CPU"


@pytest.mark.parametrize(
    ("options", "kind", "part"),
    [
        ({"device_idd": "0"}, errors.InvalidArgument, "device_id"),
        ({"device_id": "first"}, errors.InvalidArgument, "Invalid device ID"),
        ({"enable_cuda_graph": "always"}, errors.InvalidArgument, "enable_cuda_graph"),
        ({"enable_skip_layer_norm": "1"}, errors.InvalidArgument, "strict_mode"),
        ({"cudnn_conv_algo_search": "FAST"}, errors.InvalidArgument, "HEURISTIC"),
        ({"sdpa_kernel": "FLASH"}, errors.InvalidArgument, "sdpa_kernel"),
        ({"sdpa_kernel": 1}, errors.InvalidArgument, "onnxruntime's own: FLASH_ATTENTION"),
        ({"sdpa_kernel": "42"}, errors.InvalidArgument, "EFFICIENT_ATTENTION, TRT_FLASH_ATTENTION"),
        ({"sdpa_kernel": "1024"}, errors.InvalidArgument, "No such mask.*0, 8"),
        ({"prefer_nhwc": 2}, errors.InvalidArgument, "prefer_nhwc.*0 or 1"),
        ({"has_user_compute_stream": "yes"}, errors.InvalidArgument, "0 or 1"),
        ({"cudnn_conv_algo_search": 3}, errors.InvalidArgument, "HEURISTIC"),
        ({"tunable_op_max_tuning_duration_ms": "-1"}, errors.InvalidArgument, "no number"),
        ({"user_compute_stream": object()}, errors.InvalidArgument, "user_compute_stream.*stream"),
        ({"user_compute_stream": None}, errors.InvalidArgument, "user_compute_stream.*stream"),
        ({"gpu_mem_limit": "a lot"}, errors.InvalidArgument, "gpu_mem_limit"),
        ({"arena_extend_strategy": "kTwice"}, errors.InvalidArgument, "kSameAsRequested"),
        ({"user_compute_stream": "-4"}, errors.InvalidArgument, "user_compute_stream"),
        ({"gpu_external_alloc": "4096"}, errors.InvalidArgument, "come together"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], kind: Any, part: str) -> None:
    model = GRAPHS["perceptron"]().SerializeToString()
    with warnings.catch_warnings(), pytest.raises(kind, match=part):
        warnings.simplefilter("ignore")
        sardonyx.InferenceSession(model, providers=[(CUDA, options)])


def test_the_version_of_cuda(lazy: FakeDriver) -> None:
    """It is asked for when somebody wants it: to import loads no driver."""
    validation = sardonyx.onnxruntime_validation
    assert sardonyx.cuda_version == validation.cuda_version == "13.0"
    assert validation.get_package_name_and_version_info()[2] == "13.0"
    lazy.interface = 12080
    assert sardonyx.cuda_version == "12.8"
    for module in (sardonyx, validation):
        with pytest.raises(AttributeError, match="cudaversion"):
            _ = module.cudaversion


def test_dynamic_options_name_the_providers(lazy: FakeDriver) -> None:
    model = GRAPHS["perceptron"]().SerializeToString()
    session = sardonyx.InferenceSession(model, providers=[CUDA])
    session.set_ep_dynamic_options({})
    with pytest.raises(errors.InvalidArgument, match=rf"\[{CUDA}, CPU.*no dynamic options"):
        session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})
