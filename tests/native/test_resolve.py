"""Native resolving against Python: the tape, and the arena's invariant."""

import random

import numpy as np
import pytest

from sardonyx.base import integer, sizes
from sardonyx.native.functions import library
from sardonyx.native.layout import ALIGNMENT, DIVISION, DONE, FRAME, JOB, OVERFLOW
from sardonyx.plan.plan import BufferSpec, Command, Plan, PointerArgument, SizeArgument
from sardonyx.plan.tape import TapeFault, evaluate
from sardonyx.runtime.frame import Frame
from sardonyx.runtime.plan_tables import PlanTables
from sardonyx.runtime.team import Team
from tests.plan.test_tape import random_dim
from tests.support.plans import M, N, code, executable, floats

K = sizes.symbol("K")
IDLE = Command("copy", 0, 0, ())


def frame_of(plan):
    return Frame(PlanTables(plan, code(), (), Team()))


def resolve(frame, *shape):
    """The code that `resolve` gives for one feed of this shape (which need not exist)."""
    frame.table("dims")[:] = shape
    return library().resolve(frame.address, 0)


def random_arena(rng, commands, buffers):
    specs = []
    for _ in range(buffers):
        first = rng.randrange(commands)
        last = min(commands - 1, first + rng.choice([0, 1, 1, 2, 3, 10, commands]))
        size = rng.choice([0, 4, N, N * 64, N * M, N * M * 4, M * 1000 + 3])
        specs.append(BufferSpec("arena", 0, size, first, last))
    return Plan((floats(N, M),), (), tuple(specs), (IDLE,) * commands)


@pytest.mark.parametrize("seed", range(30))
def test_no_two_live_buffers_overlap(seed):
    rng = random.Random(seed)
    plan = random_arena(rng, rng.choice([1, 5, 60]), rng.choice([1, 20, 150]))
    frame = frame_of(plan)
    for shape in [(3, 4), (100, 7), (0, 9), (1, 1000)]:
        assert resolve(frame, *shape) == DONE
        symbols = dict(zip("NM", shape, strict=True))
        arena_bytes = frame.state(0, "arena_bytes")
        offsets = frame.table("offsets")
        places = []
        for buffer, offset in zip(plan.buffers, offsets.tolist(), strict=True):
            size = sizes.evaluate(buffer.size_bytes, symbols)
            assert offset % ALIGNMENT == 0
            assert 0 <= offset <= offset + size <= arena_bytes
            places.append((offset, offset + size, buffer.first, buffer.last))
        for k, (start, end, first, last) in enumerate(places):
            for other, limit, begin, final in places[:k]:
                apart = end <= other or limit <= start or last < begin or final < first
                assert apart or start == end or other == limit


def test_memory_is_used_again():
    """A chain of layers, each reading the one before, needs two buffers' memory."""
    specs = tuple(BufferSpec("arena", 0, N * 64, k, k + 1) for k in range(40))
    frame = frame_of(Plan((floats(N, M),), (), specs, (IDLE,) * 41))
    assert resolve(frame, 10, 1) == DONE
    assert frame.state(0, "arena_bytes") == 2 * 640


def test_the_best_hole_is_taken_and_holes_join():
    #         big a   small b  keep c   then: d fits b's hole, e fits a's, f needs all of them
    lives = [(64 * 4, 0, 0), (64, 0, 2), (64, 0, 0), (64, 0, 2), (64, 1, 1), (64 * 3, 2, 2)]
    specs = tuple(BufferSpec("arena", 0, size, first, last) for size, first, last in lives)
    frame = frame_of(Plan((floats(N, M),), (), specs, (IDLE,) * 3))
    assert resolve(frame, 1, 1) == DONE
    assert frame.table("offsets").tolist() == [0, 256, 320, 384, 320, 0]
    assert frame.state(0, "arena_bytes") == 448


@pytest.mark.parametrize("seed", range(20))
def test_tape_agrees_with_the_reference(seed):
    rng = random.Random(seed)
    dims = [random_dim(rng) for _ in range(20)]
    dims.append(integer.floordiv(random_dim(rng), random_dim(rng)) if seed % 2 else 1)
    command = Command("copy", 0, 0, tuple(map(SizeArgument, dims)))
    image = PlanTables(Plan((floats(N, M, K),), (), (), (command,)), code(), (), Team())
    frame = Frame(image)
    for _ in range(20):
        top = rng.choice([3, 50, 1 << 20, 1 << 40])
        symbols = {name: rng.randint(0, top) for name in "NMK"}
        found = resolve(frame, *symbols.values())
        try:
            expected = evaluate(image.tape, symbols)
        except TapeFault as fault:
            assert found == (DIVISION if fault.division else OVERFLOW)
            assert frame.get("detail_a") == fault.instruction
            continue
        except ZeroDivisionError:
            raise AssertionError("the reference divides by zero") from None
        assert found == DONE
        assert frame.table("slots").tolist() == expected
        arguments = frame.table("arguments")[: len(dims)].tolist()
        assert arguments == [sizes.evaluate(d, symbols) for d in dims]


def test_jobs():
    costs = [0, 1999, 2000, 40_000, 10**15]
    commands = tuple(Command("copy", N, cost, ()) for cost in costs)
    image = PlanTables(Plan((floats(N, M),), (), (), commands), code(), (), Team(4))
    frame = Frame(image)
    assert resolve(frame, 3, 1) == DONE
    jobs = frame.table("jobs").reshape(-1, JOB.words)
    assert jobs[:, 1].tolist() == [1, 1, 2, 3, 3]
    assert jobs[:, 2].tolist() == [3, 3, 3, 3, 1]
    assert frame.get("threads") == 3
    assert resolve(frame, 0, 1) == DONE
    assert frame.get("threads") == 0


def test_growing_dimensions_keep_their_memory():
    specs = (BufferSpec("arena", 0, N * M * 64, 0, 0),)
    command = Command("copy", 0, 0, (PointerArgument(0),))
    e = executable(Plan((floats(N, M),), (), specs, (command,)))
    seen = set()
    for n in range(100, 160):
        e.run([np.zeros((n, 8), np.float32)])
        seen.add(e.frames.arena_bytes)
    assert e.launcher.runs.resolves == 60
    assert len(seen) < 8


def test_records_are_laid_out_by_cache_lines():
    assert FRAME["fault"] * 8 % 64 == FRAME["context_fault"] * 8 % 64 == FRAME.words % 8 == 0
