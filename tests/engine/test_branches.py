"""ORT_PARALLEL: independent branches of kernels that threads walk side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.api.inspection import inspect
from sardonyx.base.errors import InvalidArgument
from sardonyx.plan.steps import Together
from tests.support.inside import executable_of
from tests.support.session import model_of

#: About graphs and plans, which no target changes.
pytestmark = pytest.mark.once

_random = np.random.default_rng(5)


def _weights(**shapes: tuple[int, ...]) -> dict[str, Any]:
    return {
        name: (_random.standard_normal(shape) * 0.1).astype(np.float32)
        for name, shape in shapes.items()
    }


def _residual() -> onnx.ModelProto:
    """A block whose shortcut has a convolution: two branches from one value to one value."""
    text = """g (float[N,24,H,W] x) => (float[N,24,H,W] y) {
        a = Conv(x, k1)
        b = Relu(a)
        c = Conv<pads = [1, 1, 1, 1]>(b, k2)
        d = Relu(c)
        e = Conv(d, k3)
        s = Conv(x, k4)
        t = Add(e, s)
        u = Relu(t)
        y = Conv(u, k4)
    }"""
    shapes = {"k1": (24, 24, 1, 1), "k2": (24, 24, 3, 3), "k3": (24, 24, 1, 1)}
    return model_of(text, _weights(**shapes, k4=(24, 24, 1, 1)))


def _towers() -> onnx.ModelProto:
    """Two chains of products of a few rows, which join in the end."""
    lines, left, right = [], "x", "z"
    for k in range(12):
        lines += [f"l{k} = MatMul({left}, w)", f"m{k} = Tanh(l{k})"]
        lines += [f"r{k} = MatMul({right}, v)", f"q{k} = Softmax(r{k})"]
        left, right = f"m{k}", f"q{k}"
    body = "\n".join(lines)
    face = "float[N,256] x, float[N,256] z) => (float[N,256] y"
    text = f"g ({face}) {{\n{body}\ny = Add({left}, {right})\n}}"
    return model_of(text, _weights(w=(256, 256), v=(256, 256)))


def _chain() -> onnx.ModelProto:
    text = """g (float[N,64] x) => (float[N,64] y) {
        a = MatMul(x, w)
        b = Softmax(a)
        c = MatMul(b, w)
        d = Add(c, x)
        y = MatMul(d, w)
    }"""
    return model_of(text, _weights(w=(64, 64)))


def _session(model: onnx.ModelProto, parallel: bool, **settings: int) -> Any:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 2
    if parallel:
        options.execution_mode = sardonyx.ExecutionMode.ORT_PARALLEL
    for name, value in settings.items():
        setattr(options, name, value)
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def _steps(session: Any) -> list[int]:
    commands = inspect(session).plan.commands
    return [len(c.parts) for c in commands if isinstance(c, Together)]


def _walked(session: Any) -> bool:
    with executable_of(session).frames.lease() as frame:
        return bool(frame.table("positions").any())


def _images(count: int, size: int) -> dict[str, Any]:
    return {"x": _random.standard_normal((count, 24, size, size)).astype(np.float32)}


def _rows(*names: str, count: int) -> dict[str, Any]:
    return {n: _random.standard_normal((count, 256)).astype(np.float32) for n in names}


CASES = [
    (_residual, [2], [_images(1, 7), _images(1, 28), _images(3, 5), _images(1, 7)]),
    (_towers, [2], [_rows("x", "z", count=n) for n in (1, 3, 40, 1)]),
    (_chain, [], [{"x": np.ones((n, 64), np.float32)} for n in (1, 5)]),
]


@pytest.mark.parametrize(
    ("make", "parts", "feeds"), CASES, ids=lambda x: getattr(x, "__name__", "")
)
def test_branches_give_the_same_bits(make: Any, parts: list[int], feeds: list[Any]) -> None:
    model = make()
    plain, apart = _session(model, False), _session(model, True)
    assert _steps(plain) == []
    assert _steps(apart) == parts
    for fed in feeds * 10:
        (expected,), (found,) = plain.run(None, fed), apart.run(None, fed)
        np.testing.assert_array_equal(found, expected)


def test_branches_of_small_kernels_are_walked() -> None:
    """What two threads would share badly, a few rows at a time, is walked by one of them each."""
    model, fed = _towers(), _rows("x", "z", count=2)
    walked = _session(model, True)
    walked.run(None, fed)
    assert _walked(walked)
    for settings in ({"intra_op_num_threads": 1}, {"inter_op_num_threads": 1}):
        other = _session(model, True, **settings)
        other.run(None, fed)
        assert not _walked(other)


def test_branches_have_threads_of_their_own() -> None:
    """One thread for kernels, two for branches: as onnxruntime's second pool."""
    model, fed = _towers(), _rows("x", "z", count=8)
    apart = _session(model, True, intra_op_num_threads=1, inter_op_num_threads=2)
    plain = _session(model, False, intra_op_num_threads=1)
    for _ in range(20):
        np.testing.assert_array_equal(apart.run(None, fed)[0], plain.run(None, fed)[0])
    assert _walked(apart)


@pytest.mark.parametrize("base", ["0", "1", "4", "64"])
def test_blocks_of_any_base(base: str) -> None:
    model, options = _residual(), sardonyx.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.dynamic_block_base", base)
    session = sardonyx.InferenceSession(model.SerializeToString(), options)
    assert inspect(session).share == (int(base) or 2)
    plain = _session(model, False)
    fed = _images(2, 20)
    np.testing.assert_array_equal(session.run(None, fed)[0], plain.run(None, fed)[0])


@pytest.mark.parametrize("base", ["-1", "fast", "1.5"])
def test_blocks_of_no_base(base: str) -> None:
    options = sardonyx.SessionOptions()
    with pytest.raises(InvalidArgument, match="dynamic_block_base.*no number of parts"):
        options.add_session_config_entry("session.dynamic_block_base", base)
