"""The instruction list of a plan's sizes, against direct evaluation."""

import random

import pytest

from sardonyx.base import integer, sizes
from sardonyx.base.errors import EngineError
from sardonyx.plan import tape as tapes
from sardonyx.plan.tape import Tape, TapeFault, evaluate

N, M, K = (sizes.symbol(x) for x in "NMK")


def random_dim(rng: random.Random, depth: int = 3):
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([N, M, K, rng.randint(-3, 9)])
    a, b = random_dim(rng, depth - 1), random_dim(rng, depth - 1)
    make = rng.choice(
        [
            sizes.add,
            sizes.multiply,
            integer.maximum,
            integer.minimum,
            lambda a, _: integer.floordiv(a, rng.randint(1, 7)),
        ]
    )
    return make(a, b)


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_direct_evaluation(seed):
    rng = random.Random(seed)
    dims = [random_dim(rng) for _ in range(30)]
    tape = Tape()
    slots = [tape.slot(d) for d in dims]
    for name in "NMK":
        tape.symbol(name)
    symbols = {name: rng.randint(0, 50) for name in "NMK"}
    values = evaluate(tape, symbols)
    assert [values[s] for s in slots] == [sizes.evaluate(d, symbols) for d in dims]


def test_shared_parts_are_computed_once():
    tape = Tape()
    tape.slot(N * M * 4)
    before = len(tape.instructions)
    tape.slot(N * M * 4 + K)
    tape.slot(N * M * 8)
    assert (before, len(tape.instructions)) == (2, 4)


@pytest.mark.parametrize(
    ("dim", "symbols", "division"),
    [
        (N * M, {"N": 1 << 40, "M": 1 << 40}, False),
        (N * M * 4, {"N": 1 << 31, "M": 1 << 30}, False),
        (integer.floordiv(N, M), {"N": 4, "M": 0}, True),
        (integer.floordiv(N, M - 5), {"N": 4, "M": 2}, True),
    ],
)
def test_faults(dim, symbols, division):
    tape = Tape()
    tape.slot(dim)
    with pytest.raises(TapeFault) as caught:
        evaluate(tape, symbols)
    assert caught.value.division is division


def test_values_of_kernels_are_refused():
    with pytest.raises(EngineError, match="has no value before a kernel runs"):
        Tape().slot(sizes.index(N) + 1)


def test_operations_are_numbered_as_the_native_code_expects():
    names = ("ADD", "MULTIPLY", "FLOORDIV", "MAXIMUM", "MINIMUM")
    assert [getattr(tapes, name) for name in names] == [0, 1, 2, 3, 4]
