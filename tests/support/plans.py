"""Plans written by hand, with small kernels."""

from functools import lru_cache

from sardonyx.base import dtypes, integer, sizes
from sardonyx.cpu.executable import executable_of
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.types import F32, I64, PTR
from sardonyx.link.blob import build
from sardonyx.link.executable_memory import load_blob
from sardonyx.llvm.module import emit_module
from sardonyx.plan.plan import (
    BufferSpec,
    Command,
    InputSpec,
    OutputSpec,
    Plan,
    PointerArgument,
    SizeArgument,
)
from sardonyx.targets.target import host_target

#: Elements per block of the kernels below.
CHUNK = 64
N, M = sizes.symbol("N"), sizes.symbol("M")


def _chunked(name, pointers, body):
    """A kernel over `count` elements: pointers, then the count."""
    b = Builder(name, [*((p, PTR) for p in pointers), ("count", I64)], kind="kernel")
    given = [b.parameter(p) for p in pointers]
    count = b.parameter("count")
    with b.parallel() as block:
        low = block * CHUNK
        with b.for_(low, b.min(low + CHUNK, count)) as i:
            body(b, given, i)
    return b.program


def add():
    def body(b, given, i):
        x, y, z = given
        b.store(b.load(F32, x, i) + b.load(F32, y, i), z, i)

    return _chunked("add", ("x", "y", "z"), body)


def copy():
    return _chunked("copy", ("x", "y"), lambda b, g, i: b.store(b.load(F32, g[0], i), g[1], i))


def thread_numbers():
    """y[i] = the number of the thread; scratch of that thread is written on the way."""

    def body(b, given, i):
        thread = b.context("thread")
        scratch = b.context("scratch")
        b.store(thread, scratch)
        b.store(b.convert(b.load(I64, scratch), F32), given[0], i)

    return _chunked("thread_numbers", ("y",), body)


def total():
    """y[row] = sum of x[row, :count]; one block per row."""
    b = Builder("total", [("x", PTR), ("y", PTR), ("count", I64)], kind="kernel")
    x, y, count = (b.parameter(p) for p in ("x", "y", "count"))
    with b.parallel() as row:
        sum_ = b.variable(0.0, F32)
        with b.for_(0, count) as i:
            sum_.set(sum_.get() + b.load(F32, x, row * count + i))
        b.store(sum_.get(), y, row)
    return b.program


def pick():
    """y[0] = x[index[0]], with a check."""
    b = Builder("pick", [("x", PTR), ("index", PTR), ("y", PTR), ("count", I64)], kind="kernel")
    x, index, y, count = (b.parameter(p) for p in ("x", "index", "y", "count"))
    with b.parallel():
        i = b.load(I64, index)
        bad = b.binary("or", i < 0, b.compare("ge", i, count))
        with b.if_(bad):
            b.fault(1, i, count)
        with b.else_():
            b.store(b.load(F32, x, i), y)
    return b.program


def busy():
    """Each block counts to `count`, a while."""
    b = Builder("busy", [("y", PTR), ("count", I64)], kind="kernel")
    y, count = b.parameter("y"), b.parameter("count")
    with b.parallel() as block:
        with b.for_(0, count):
            b.pause()
        b.store(b.convert(block, F32), y, block)
    return b.program


def kept():
    """y[block] = the first word of scratch when the call began; then it is `number`."""
    b = Builder("kept", [("y", PTR), ("number", I64)], kind="kernel")
    y, number = b.parameter("y"), b.parameter("number")
    before = b.load(I64, b.context("scratch"))
    with b.parallel() as block:
        b.store(b.convert(before, F32), y, block)
        b.store(number, b.context("scratch"))
    return b.program


@lru_cache(maxsize=1)
def code():
    """All kernels of this file, compiled."""
    programs = [add(), copy(), thread_numbers(), total(), pick(), busy(), kept()]
    return load_blob(build(emit_module(programs, host_target()), host_target()))


def chunks(count):
    return integer.ceildiv(count, CHUNK)


def chunked(kernel, buffers, count, cost=0, **more):
    """A command of one of the kernels over `count` elements."""
    arguments = (*map(PointerArgument, buffers), SizeArgument(count))
    return Command(kernel, chunks(count), cost, arguments, **more)


def floats(*dims, name="x"):
    return InputSpec(name, dtypes.FLOAT, dims)


def result(*dims, name="y"):
    return OutputSpec(name, dtypes.FLOAT, dims)


def bytes_of(count):
    return sizes.multiply(count, 4)


def sum_plan(cost=0, guards=()):
    """y = x + x + x, over [N, M], through an arena buffer, in three commands."""
    count = N * M
    size = bytes_of(count)
    buffers = (
        BufferSpec("input", 0, size),
        BufferSpec("arena", 0, size, 0, 1),
        BufferSpec("arena", 0, size, 1, 2),
        BufferSpec("output", 0, size),
    )
    commands = (
        chunked("add", (0, 0, 1), count, cost, origin=("first",)),
        chunked("add", (0, 1, 2), count, cost, origin=("second",)),
        chunked("copy", (2, 3), count, cost, origin=("third",)),
    )
    return Plan((floats(N, M),), (result(N, M),), buffers, commands, guards)


def kept_plan(blocks, cost):
    """Two commands of `kept`, with the numbers 7 and 9."""
    commands = (
        Command("kept", blocks, cost, (PointerArgument(0), SizeArgument(7)), scratch_bytes=64),
        Command("kept", blocks, cost, (PointerArgument(1), SizeArgument(9)), scratch_bytes=64),
    )
    buffers = tuple(BufferSpec("output", k, bytes_of(blocks)) for k in range(2))
    outputs = (result(blocks), result(blocks, name="z"))
    return Plan((), outputs, buffers, commands)


def executable(plan, constants=(), **options):
    return executable_of(plan, code(), constants, **options)
