"""Plans as data: checks, bytes, text."""

import pytest

from sardonyx.base import dtypes, integer, sizes
from sardonyx.base.errors import EngineError
from sardonyx.plan.plan import (
    BitsArgument,
    BufferSpec,
    Command,
    Guard,
    InputSpec,
    OutputSpec,
    Plan,
    PointerArgument,
    SizeArgument,
)
from sardonyx.plan.serial import from_bytes, to_bytes

N, M = sizes.symbol("N"), sizes.symbol("M")
INPUT = InputSpec("x", dtypes.FLOAT, (N, M))
OUTPUT = OutputSpec("y", dtypes.FLOAT, (N * M,))
BUFFERS = (
    BufferSpec("input", 0, N * M * 4),
    BufferSpec("output", 0, N * M * 4),
    BufferSpec("arena", 0, integer.maximum(N, M) * integer.ceildiv(N, 16), 0, 1),
    BufferSpec("constant", 2, 64),
)
COMMANDS = (
    Command(
        "copy",
        integer.ceildiv(N * M, 1024),
        N * M,
        (PointerArgument(0), PointerArgument(2, N * 4), SizeArgument(N * M), BitsArgument(1 << 63)),
        M * 64,
        ("a", "b"),
    ),
    Command("add", 1, 5, (PointerArgument(2), PointerArgument(3), PointerArgument(1))),
)
PLAN = Plan((INPUT,), (OUTPUT,), BUFFERS, COMMANDS, (Guard(N, integer.minimum(M, N), "why"),))


def test_bytes_round_trip():
    assert from_bytes(to_bytes(PLAN)) == PLAN
    assert PLAN.constant_count == 3


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-3], lambda d: b"x" + d, lambda d: d.replace(b"copy", b'"1"')]
)
def test_damaged_bytes(damage):
    with pytest.raises(EngineError, match="plan"):
        from_bytes(damage(to_bytes(PLAN)))


@pytest.mark.parametrize(
    ("buffers", "arguments", "text"),
    [
        ((BufferSpec("output", 0, 4),) * 2, (), "Output 'y' has 2 buffers"),
        ((), (), "Output 'y' has 0 buffers"),
        ((*BUFFERS[:2], BufferSpec("arena", 0, 4, 3, 2)), (), "Buffer 2 ends before it begins"),
        (BUFFERS[:2], (PointerArgument(2),), "uses buffer 2: there is none"),
        ((BUFFERS[1], BufferSpec("input", 1, 4)), (), "There is no input 1"),
        (
            (BUFFERS[1], BufferSpec("arena", 0, 4, 5, 7)),
            (PointerArgument(1),),
            "lives from 5 to 7",
        ),
    ],
)
def test_contradictions(buffers, arguments, text):
    with pytest.raises(EngineError, match=text):
        Plan((INPUT,), (OUTPUT,), buffers, (Command("k", 1, 1, arguments),))


def test_prints():
    lines = str(PLAN).splitlines()
    assert lines[0] == "input x: float[N, M]"
    assert lines[-1] == "1: add(b2, b3, b1) over 1 blocks, 5 ns  # "
