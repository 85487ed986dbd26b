"""Executables over hand-written plans: values, shapes, feeds, errors."""

import sys
import sysconfig

import ml_dtypes
import numpy as np
import pytest

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.errors import (
    EngineError,
    Fail,
    InvalidArgument,
    OutOfMemory,
    RuntimeException,
)
from sardonyx.plan.plan import (
    BufferSpec,
    Command,
    Guard,
    InputSpec,
    OutputSpec,
    Plan,
    PointerArgument,
    SizeArgument,
)
from sardonyx.runtime import arrays
from sardonyx.runtime.cancel import CancelFlag
from tests.support.plans import (
    M,
    N,
    bytes_of,
    chunked,
    executable,
    floats,
    result,
    sum_plan,
)


def numbers(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


def copy_plan(*dims, dtype=dtypes.FLOAT):
    count = sizes.product(dims)
    buffers = (BufferSpec("input", 0, bytes_of(count)), BufferSpec("output", 0, bytes_of(count)))
    spec, out = InputSpec("x", dtype, dims), OutputSpec("y", dtype, dims)
    return Plan((spec,), (out,), buffers, (chunked("copy", (0, 1), count),))


def pick_plan():
    buffers = (
        BufferSpec("input", 0, bytes_of(N)),
        BufferSpec("input", 1, 8),
        BufferSpec("output", 0, 4),
    )
    arguments = (*map(PointerArgument, range(3)), SizeArgument(N))
    index = InputSpec("index", dtypes.INT64, ())
    command = Command("pick", 1, 0, arguments, origin=("gather", "squeeze"))
    return Plan((floats(N), index), (result(),), buffers, (command,))


def test_changing_shapes_resolve_once_each():
    e = executable(sum_plan())
    for shape in [(3, 50), (3, 50), (100, 70), (1, 1), (1, 1), (3, 50)]:
        x = numbers(*shape)
        (y,) = e.run([x])
        np.testing.assert_array_equal(y, 3 * x)
        assert y.flags.owndata and y.shape == shape
    assert e.launcher.runs.resolves == 4
    assert e.frames.arena_bytes >= 2 * 100 * 70 * 4


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_empty(shape):
    (y,) = executable(sum_plan()).run([numbers(*shape)])
    assert y.shape == shape


def test_rank_zero_and_no_commands():
    e = executable(copy_plan())
    assert e.run([np.float32(7)])[0] == 7
    assert e.run([3])[0].shape == ()
    assert executable(Plan((), (), (), ())).run([]) == []
    unused = Plan((floats(N), floats(N, name="z")), (), (), ())
    assert executable(unused).run([numbers(3), numbers(3)]) == []


def test_results_are_never_shared():
    e = executable(copy_plan(N))
    first, second = e.run([numbers(5)])[0], e.run([numbers(5) + 1])[0]
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, numbers(5))


class Subclass(np.ndarray):
    pass


def misaligned(x):
    raw = np.zeros(x.nbytes + 1, np.uint8)
    raw[1:] = x.view(np.uint8).reshape(-1)
    return raw[1:].view(np.float32).reshape(x.shape)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: np.asfortranarray(x),
        lambda x: x.astype(">f4"),
        lambda x: x.tolist(),
        lambda x: x.view(Subclass),
        lambda x: misaligned(x),
        lambda x: x.view(np.dtype(np.float32, metadata={"a": 1})),
        lambda x: x[::-1].copy()[::-1],
        lambda x: np.broadcast_to(x, x.shape),
    ],
    ids="strided fortran swapped list subclass misaligned metadata reversed readonly".split(),
)
@pytest.mark.parametrize("native", [True, False])
def test_unusual_feeds(make, native, monkeypatch):
    monkeypatch.setattr(arrays, "NATIVE", native)
    x = numbers(6, 5)
    np.testing.assert_array_equal(executable(sum_plan()).run([make(x)])[0], 3 * x)


def test_this_interpreter_is_read_natively():
    assert arrays.NATIVE is (sys.implementation.name == "cpython" and not _free_threaded())


def _free_threaded():
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def test_types_that_numpy_does_not_know():
    e = executable(copy_plan(N, dtype=dtypes.INT32))
    np.testing.assert_array_equal(e.run([np.arange(70, dtype=np.intc)])[0], np.arange(70))
    x = np.arange(8, dtype=np.longlong)
    wide = InputSpec("x", dtypes.INT64, (N,))
    plan = Plan((wide,), (result(N * 2),), copy_plan(N * 2).buffers, copy_plan(N * 2).commands)
    np.testing.assert_array_equal(executable(plan).run([x])[0].view(np.int64), x)
    plan = Plan(
        (InputSpec("x", dtypes.BFLOAT16, (N,)),),
        (OutputSpec("y", dtypes.BFLOAT16, (N,)),),
        (BufferSpec("input", 0, N * 2), BufferSpec("output", 0, N * 2)),
        (chunked("copy", (0, 1), integer.floordiv(N, 2)),),
    )
    x = np.arange(8).astype(ml_dtypes.bfloat16)
    (y,) = executable(plan).run([x])
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y.astype(int), np.arange(8))


@pytest.mark.parametrize(
    ("feeds", "text"),
    [
        ([], "number of feeds is wrong. Expected 1, got 0"),
        ([np.zeros((2, 2))], r"\[input x\].*element type. Expected float .*, got double"),
        ([numbers(3)], r"\[input x\].*wrong rank. Expected 2 axes, \(N, M\), got 1"),
        ([[["a"]]], r"\[input x\] The feed, a list, is no array"),
        ([None], r"\[input x\]"),
        ([np.array([[b"x"]])], r"\[input x\].*element type"),
    ],
)
def test_feeds_that_do_not_fit(feeds, text):
    e = executable(sum_plan())
    with pytest.raises(InvalidArgument, match=text):
        e.run(feeds)
    np.testing.assert_array_equal(e.run([numbers(2, 2)])[0], 3 * numbers(2, 2))


@pytest.mark.parametrize(
    ("dims", "shape", "text"),
    [
        ((N, 4), (2, 5), "Axis 1 .*Expected 4, got 5"),
        ((N, N), (2, 5), r"Axis 1 .*Expected 2 \(N\), got 5"),
        ((N, N * 2 + 1), (2, 6), r"Axis 1 .*Expected 5 \(.*\), got 6"),
        ((N * 2, N), (5, 2), r"Axis 0 .*Expected 4 \(2\*N\), got 5"),
    ],
)
def test_dimensions_that_do_not_fit(dims, shape, text):
    e = executable(copy_plan(*dims))
    good = [sizes.evaluate(d, {"N": 3}) for d in dims]
    for _ in range(2):
        with pytest.raises(InvalidArgument, match=text):
            e.run([numbers(*shape)])
        np.testing.assert_array_equal(e.run([numbers(*good)])[0], numbers(*good))


def test_guards():
    e = executable(sum_plan(guards=(Guard(N, M * 2, "axes agree"),)))
    assert e.run([numbers(4, 2)])[0].shape == (4, 2)
    with pytest.raises(InvalidArgument, match=r"axes agree. Expected 3 \(N\), got 4 \(2\*M\)"):
        e.run([numbers(3, 2)])


@pytest.mark.parametrize(
    ("size", "feed", "error", "text"),
    [
        (N - 5, 2, InvalidArgument, "buffer of -12 "),
        (integer.floordiv(N, M), 2, InvalidArgument, "divides by zero"),
        (N * (1 << 60), 9, InvalidArgument, "too large for these feeds"),
        (N * N * N * (1 << 60), 9, InvalidArgument, "too large for these feeds"),
        (N * (1 << 50), 2, OutOfMemory, "buffer of"),
    ],
)
def test_sizes_that_do_not_exist(size, feed, error, text):
    buffers = (
        BufferSpec("arena", 0, bytes_of(size) if error is InvalidArgument else size, 0, 0),
        BufferSpec("output", 0, bytes_of(1)),
    )
    command = Command("copy", 0, 0, (PointerArgument(0), PointerArgument(1), SizeArgument(size)))
    plan = Plan((floats(N, M),), (result(1),), buffers, (command,))
    with pytest.raises(error, match=text):
        executable(plan).run([numbers(feed, 0)])


def test_huge_outputs_and_negative_ones():
    huge = N * (1 << 40)
    plan = Plan((floats(N),), (result(huge),), (BufferSpec("output", 0, bytes_of(huge)),), ())
    with pytest.raises(OutOfMemory, match="needed for results"):
        executable(plan).run([numbers(9)])
    negative = (N - 5) * (N - 5)
    plan = Plan((floats(N),), (result(N - 5, N - 5),), (BufferSpec("output", 0, negative * 4),), ())
    with pytest.raises(InvalidArgument, match=r"output y.*\(-2, -2\)"):
        executable(plan).run([numbers(3)])


def test_plans_that_lie_about_sizes_are_refused():
    x = BufferSpec("input", 0, bytes_of(N) + 4)
    y = BufferSpec("output", 0, bytes_of(N) + 4)
    plan = Plan((floats(N),), (result(N),), (x, y), (chunked("copy", (0, 1), N + 1),))
    with pytest.raises(InvalidArgument, match="input 0 must hold"):
        executable(plan).run([numbers(3)])
    beyond = Command("copy", 1, 0, (PointerArgument(0, N * 8), PointerArgument(1), SizeArgument(0)))
    plan = Plan(copy_plan(N).inputs, (result(N),), copy_plan(N).buffers, (beyond,))
    with pytest.raises(EngineError, match="outside its buffer"):
        executable(plan).run([numbers(3)])
    with pytest.raises(EngineError, match="No input's axis gives M a value"):
        executable(copy_plan(N, M * 2))


def test_faults_name_their_nodes():
    e = executable(pick_plan())
    x = numbers(5)
    assert e.run([x, np.array(3)])[0] == 3
    text = r"\[node gather, squeeze\] index 9 is out of range for an axis of size 5"
    with pytest.raises(RuntimeException, match=text):
        e.run([x, np.array(9)])
    assert e.run([x, np.array(4)])[0] == 4


def test_constants():
    buffers = (
        BufferSpec("input", 0, 16),
        BufferSpec("constant", 0, 16),
        BufferSpec("output", 0, 16),
    )
    plan = Plan((floats(4),), (result(4),), buffers, (chunked("add", (0, 1, 2), 4),))
    e = executable(plan, [numbers(4) * 10])
    np.testing.assert_array_equal(e.run([numbers(4)])[0], numbers(4) * 11)
    with pytest.raises(EngineError, match="0 constants where 1 are used"):
        executable(plan)
    with pytest.raises(InvalidArgument, match="constant 0 must hold 16 bytes"):
        executable(plan, [numbers(3)]).run([numbers(4)])


def test_offsets_point_into_buffers():
    buffers = (BufferSpec("input", 0, bytes_of(N * 2)), BufferSpec("output", 0, bytes_of(N * 2)))
    commands = [
        Command(
            "copy", 1, 0, (PointerArgument(0, a), PointerArgument(1, b), SizeArgument(N))
        )
        for a, b in ((0, N * 4), (N * 4, 0))
    ]  # fmt: skip
    plan = Plan((floats(2, N),), (result(2, N),), buffers, tuple(commands))
    np.testing.assert_array_equal(executable(plan).run([numbers(2, 7)])[0], numbers(2, 7)[::-1])


def test_run_into():
    e = executable(sum_plan())
    x, y = numbers(3, 4), np.zeros((3, 4), np.float32)
    e.run_into([x], [y])
    np.testing.assert_array_equal(y, 3 * x)
    readonly = np.zeros((3, 4), np.float32)
    readonly.flags.writeable = False
    for bad in (y[:2], y.astype(np.float64), np.zeros((4, 3), np.float32).T, readonly, None):
        with pytest.raises(InvalidArgument, match="output y"):
            e.run_into([x], [bad])
    with pytest.raises(InvalidArgument, match="number of outputs"):
        e.run_into([x], [])


def test_a_set_flag_cancels():
    e, flag = executable(sum_plan()), CancelFlag()
    flag.set()
    with pytest.raises(Fail, match="cancelled"):
        e.run([numbers(2, 2)], flag)
    flag.clear()
    np.testing.assert_array_equal(e.run([numbers(2, 2)], flag)[0], 3 * numbers(2, 2))
    flag.set()
    np.testing.assert_array_equal(e.run([numbers(2, 2)])[0], 3 * numbers(2, 2))


def test_trim_gives_memory_back():
    e = executable(sum_plan())
    e.run([numbers(100, 100)])
    e.trim()
    assert e.frames.arena_bytes == 0
    np.testing.assert_array_equal(e.run([numbers(2, 2)])[0], 3 * numbers(2, 2))
