"""What a run computes, and what making a session says and stops: options that act."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors, knobs
from tests.support.session import model_of

MODEL = model_of(
    "agraph (float[n] x, int64[k] i) => (float[n] y, float[k] z, float[n] u)"
    " { y = Relu(x) z = Gather(x, i) u = Neg(y) }"
).SerializeToString()
X = np.array([-1, 2, 3], np.float32)
#: An index that is outside: a run that computes `z` fails.
OUTSIDE = {"x": X, "i": np.array([7])}


def only() -> sardonyx.RunOptions:
    options = sardonyx.RunOptions()
    options.only_execute_path_to_fetches = True
    return options


def test_only_what_is_fetched_is_computed() -> None:
    session = sardonyx.InferenceSession(MODEL)
    for _ in range(2):
        (y,) = session.run(["y"], OUTSIDE, only())
        assert y.tolist() == [0, 2, 3]
        u, y, u2 = session.run(["u", "y", "u"], OUTSIDE, only())
        assert (u.tolist(), y.tolist(), u2.tolist()) == ([0, -2, -3], [0, 2, 3], [0, -2, -3])
        with pytest.raises(errors.RuntimeException, match="index 7"):
            session.run(["z"], OUTSIDE, only())
        with pytest.raises(errors.RuntimeException, match="index 7"):
            session.run(None, OUTSIDE, only())
        with pytest.raises(errors.RuntimeException, match="index 7"):
            session.run(["y"], OUTSIDE)
    with pytest.raises(errors.InvalidArgument, match="missing"):
        session.run(["y"], {"x": X}, only())
    with pytest.raises(errors.InvalidArgument, match="no output"):
        session.run(["q"], OUTSIDE, only())


def test_other_ways_to_run() -> None:
    session = sardonyx.InferenceSession(MODEL)
    values = {k: sardonyx.OrtValue.ortvalue_from_numpy(v) for k, v in OUTSIDE.items()}
    assert session.run_with_ort_values(["y"], values, only())[0].numpy().tolist() == [0, 2, 3]
    lists = {"x": [-1.0, 2.0, 3.0], "i": [7]}
    assert session.run(["y"], lists, only())[0].tolist() == [0, 2, 3]
    options = only()
    options.terminate = True
    with pytest.raises(errors.Fail):
        session.run(["y"], OUTSIDE, options)
    assert len(session.run(None, {"x": X, "i": np.array([0])}, only())) == 3


def test_overridable_initializers_are_fed_then_too() -> None:
    text = (
        "agraph (float[n] x, float[n] w) => (float[n] y, float[n] z)"
        " { y = Add(x, w) z = Mul(x, w) }"
    )
    model = model_of(text, {"w": np.ones(3, np.float32)})
    session = sardonyx.InferenceSession(model.SerializeToString())
    assert session.run(["y"], {"x": X}, only())[0].tolist() == [0, 3, 4]
    feeds = {"x": X, "w": np.full(3, 5, np.float32)}
    assert session.run(["z"], feeds, only())[0].tolist() == [-5, 10, 15]


def test_a_bundle_computes_all(tmp_path: Path) -> None:
    path = str(tmp_path / "m.sardonyx")
    sardonyx.ModelCompiler(sardonyx.SessionOptions(), MODEL).compile_to_file(path)
    session = sardonyx.InferenceSession(path)
    assert session.run(["y"], {"x": X, "i": np.array([0])}, only())[0].tolist() == [0, 2, 3]


def test_a_load_is_cancelled_from_another_thread() -> None:
    nodes = " ".join(f"a{k + 1} = Exp(a{k}) b{k + 1} = ReduceSum(a{k + 1})" for k in range(1500))
    outputs = ", ".join(f"float b{k + 1}" for k in range(1500))
    text = f"agraph (float[n, {{}}] a0) => (float[n, {{}}] a1500, {outputs}) {{{{ {nodes} }}}}"
    data = model_of(text.format(7, 7)).SerializeToString()
    options = sardonyx.SessionOptions()
    ended: list[Any] = []

    def load() -> None:
        start = time.perf_counter()
        try:
            with knobs.override("SARDONYX_CACHE", "off"):
                ended.append(sardonyx.InferenceSession(data, options))
        except Exception as error:
            ended.append(error)
        ended.append(time.perf_counter() - start)

    thread = threading.Thread(target=load)
    thread.start()
    time.sleep(0.2)
    options.set_load_cancellation_flag(True)
    thread.join(60)
    assert isinstance(ended[0], errors.ModelLoadCanceled)
    assert ended[1] < 20


def test_the_same_feeds_give_the_same_bits() -> None:
    text = (
        "agraph (float[n, 512] x) => (float s, float[n, 64] m)"
        " { s = ReduceSum<keepdims = 0>(x) m = MatMul(x, w) }"
    )
    model = model_of(text, {"w": np.random.default_rng(0).standard_normal((512, 64), np.float32)})
    x = np.random.default_rng(1).standard_normal((700, 512), np.float32)
    found = set()
    for threads in (1, 2, 3):
        options = sardonyx.SessionOptions()
        options.use_deterministic_compute = True
        options.intra_op_num_threads = threads
        session = sardonyx.InferenceSession(model.SerializeToString(), options)
        for _ in range(4):
            found.add(b"".join(r.tobytes() for r in session.run(None, {"x": x})))
    assert len(found) == 1
