"""What a kernel packs stays in a thread's scratch until the command is done."""

import numpy as np
import pytest

from sardonyx.base import dtypes
from sardonyx.kernel.context import FIELDS
from sardonyx.runtime.compiler import compile_tensors
from sardonyx.tensor import language as t
from sardonyx.tensor.tensor import buffer
from tests.support.kernels import Kernels, targets
from tests.support.plans import executable, kept_plan

WORD = 8


def attention(q, k, v):
    scores = t.matmul(q, t.transpose(k, (0, 2, 1))) * 0.2
    power = t.exp(scores - scores.max(-1, True))
    return t.matmul(power / power.sum(-1, True), v)


def in_numpy(q, k, v):
    scores = q @ k.transpose(0, 2, 1) * 0.2
    power = np.exp(scores - scores.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("target", targets(), ids=lambda t: t.isa)
def test_attention_packs_a_batch_once_for_several_calls(target):
    """Keys and values that change between two calls are not read again, unless scratch is new."""
    tensors = [buffer(n, (2, 200, 24), dtypes.FLOAT) for n in "qkv"]
    named = list(zip("qkv", tensors, strict=True))
    compiled = compile_tensors([("y", attention(*tensors))], named, {}, target)
    (invocation,) = compiled.invocations
    kernel = invocation.kernel
    kernels = Kernels([*kernel.functions, kernel.program], target)
    room = np.zeros(kernel.scratch_bytes // WORD + 8, np.int64)
    scratch = room[-(room.ctypes.data // WORD) % 8 :]  # from a cache line on
    kernels.context[FIELDS["scratch"] // WORD] = scratch.ctypes.data
    random = np.random.default_rng(5)
    first, second = random.standard_normal((2, 3, 2, 200, 24)).astype(np.float32)
    second[0] = first[0]
    feeds, y = first.copy(), np.zeros((2, 200, 24), np.float32)
    arrays = {**dict(zip(tensors, feeds, strict=True)), invocation.writes[0]: y}

    def run(begin, end):
        given = [arrays[a] for a in invocation.arguments]
        kernels.run(kernel.program.name, *given, begin=begin, end=end)

    assert kernel.blocks == 2 * 3
    run(0, 1)
    feeds[...] = second
    run(1, 2)
    scratch[0] = 0
    run(2, 3)
    run(3, 6)
    assert kernels.fault[0] == 0
    old, new = in_numpy(*first.astype(np.float64)), in_numpy(*second.astype(np.float64))
    np.testing.assert_allclose(y[0, :192], old[0, :192], rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(y[0, 192:], new[0, 192:], rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(y[1], new[1], rtol=2e-5, atol=2e-6)


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
