"""What a kernel packs stays in a thread's scratch until the command is done."""

import numpy as np
import pytest

from sardonyx.base import dtypes
from sardonyx.compiler.compile_graph import TensorGraph, compile_tensors
from sardonyx.kernel.language.context import FIELDS
from sardonyx.ops.onnx.matrix_misc import matmul_integers
from sardonyx.tensor import language as t
from sardonyx.tensor.elementwise import constant
from sardonyx.tensor.tensor import buffer
from tests.support.kernels import Kernels, targets
from tests.support.plans import executable, kept_plan
from tests.support.tolerances import assert_near

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

WORD = 8


def attention(q, k, v):
    scores = t.matmul(q, t.transpose(k, (0, 2, 1))) * 0.2
    power = t.exp(scores - scores.max(-1, True))
    return t.matmul(power / power.sum(-1, True), v)


def attention_in_numpy(q, k, v):
    scores = q @ k.transpose(0, 2, 1) * 0.2
    power = np.exp(scores - scores.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True) @ v


def product(q, k):
    return t.matmul(q, t.transpose(k, (0, 2, 1)))


def product_in_numpy(q, k):
    return q @ k.transpose(0, 2, 1)


def codes(q, k):
    zeros = (constant(zero, dtypes.UINT8) for zero in (3, 5))
    return matmul_integers(q, t.transpose(k, (0, 2, 1)), *zeros, "codes")


def codes_in_numpy(q, k):
    return (q - 3) @ (k.transpose(0, 2, 1) - 5)


CASES = {
    "attention": (attention, attention_in_numpy, "qkv", dtypes.FLOAT),
    "product": (product, product_in_numpy, "qk", dtypes.FLOAT),
    "codes": (codes, codes_in_numpy, "qk", dtypes.UINT8),
}


@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
@pytest.mark.parametrize("case", CASES)
def test_what_several_calls_need_is_packed_once(target, case):
    """Factors that change between two calls are not read again, unless scratch is new."""
    write, in_numpy, names, dtype = CASES[case]
    tensors = [buffer(n, (2, 200, 24), dtype) for n in names]
    y = write(*tensors)
    compiled = compile_tensors(
        TensorGraph([("y", y)], list(zip(names, tensors, strict=True))), target
    )
    *constants, invocation = compiled.invocations
    kernel = invocation.kernel
    programs = {
        p.name: p for i in compiled.invocations for p in (*i.kernel.functions, i.kernel.program)
    }
    kernels = Kernels([*programs.values()], target)
    room = np.zeros(kernel.scratch_bytes // WORD + 16, np.int64)
    scratch = room[-(room.ctypes.data // WORD) % 8 :]  # from a cache line on
    kernels.context[FIELDS["scratch"] // WORD] = scratch.ctypes.data
    random = np.random.default_rng(5)
    first, second = random.normal(40, 20, (2, len(names), 2, 200, 24)).astype(dtype.numpy)
    if dtype is dtypes.FLOAT:
        first, second = (x / 20 - 2 for x in (first, second))
    second[0] = first[0]
    feeds = first.copy()
    arrays = dict(zip(tensors, feeds, strict=True))
    for i in compiled.invocations:
        arrays |= {x: np.zeros([*map(int, x.shape)], x.dtype.numpy) for x in i.writes}
    result = arrays[invocation.writes[0]]

    def run(begin, end, i=invocation):
        given = [arrays.get(a, a) for a in i.arguments]  # sizes are numbers
        kernels.run(i.kernel.program.name, *given, begin=begin, end=end)

    for i in constants:
        run(0, i.kernel.blocks, i)
    run(0, 1)
    rows, columns = (int((result[0] != 0).any(axis).sum()) for axis in (1, 0))
    assert 0 < 2 * rows < 200
    feeds[...] = second
    run(1, 2)
    scratch[0] = 0
    run(2, 3)
    run(3, kernel.blocks)
    assert kernels.fault[0] == 0
    old, want = (in_numpy(*x.astype(np.float64)) for x in (first, second))
    want[0, : 2 * rows, :columns] = old[0, : 2 * rows, :columns]
    assert_near(result, want, "float: kept results")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_command_begins_with_nothing_kept(threads):
    """Each of two commands sees 0 in a thread's first call, and its own number afterwards."""
    # Seven calls by the cost, of nine blocks at most.
    e = executable(kept_plan(blocks=60, cost=6 * 10**6), threads=threads)
    for _ in range(20):
        first, second = e.run([])
        for seen, own in ((first, 7), (second, 9)):
            assert set(seen.tolist()) <= {0, own}
            assert 1 <= np.count_nonzero(seen == 0) <= 9 * threads
