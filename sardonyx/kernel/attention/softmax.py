"""The softmax of a tile's scores: rows of powers, and what each row is to be divided by.

    scores[r][t] = 2^((scores[r][t] - max over t of scores[r]) * factor)
    totals[r] = sum over t of scores[r][t]

Runs of powers are added up in float32, and what they give in float64: a total is within 1e-6,
however many there are.
Rows are walked side by side: the largest score of one and the sum of another then wait for nothing.

Loop nest; `rows` rows r are written out::

    for t in 0..count step lanes: best[r] = max(best[r], scores[r][t])
    for begin in 0..count step _RUN * lanes:
        for t in begin..begin + _RUN * lanes step lanes:
            scores[r][t] = 2^((scores[r][t] - best[r]) * factor)
            sums[r] += scores[r][t]                       # float32
        wide[r] += sums[r]                                # float64
"""

from __future__ import annotations

from functools import cache

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import F32, F64, I64, PTR

#: 2^r for |r| <= 0.501, lowest power first: 2e-9 of it at most. One term less (9e-8) was to be seen
#: in the errors of whole networks.
_POWERS = (
    1.0, 0.6931472065574827, 0.24022651354203506, 0.0555032712337032, 0.00961800282203631,
    0.0013400537710874653, 0.00015476609816468176,
)  # fmt: skip
#: Powers of less are 0: half of the smallest number.
_LOWEST = -150.0
#: Powers of a lane that are added up in float32.
_RUN = 32


def softmax_name(rows: int, lanes: int) -> str:
    """Symbol of what `build_softmax` makes."""
    return f"softmax_{rows}x{lanes}"


@cache
def build_softmax(rows: int, lanes: int) -> Program:
    """`(scores, step, count, factor, guarded, totals)`: see the module's text.

    scores: rows of `count` elements, a multiple of `lanes`, that begin `step` elements apart.
    Where `guarded` is not 0, a row of nothing but minus infinity becomes one of 0, and its total 1;
    that of a row of no scores is 1 anyway.
    NaN need not become the largest: its own power is NaN, and so are the total and all that is
    divided by it.
    """
    parameters = [
        ("scores", PTR), ("step", I64), ("count", I64), ("factor", F32), ("guarded", I64),
        ("totals", PTR),
    ]  # fmt: skip
    b = Builder(softmax_name(rows, lanes), parameters)
    scores, step, count, factor, guarded, totals = (b.parameter(n) for n, _ in parameters)
    vector, is_guarded = F32.with_lanes(lanes), b.ne(guarded, 0)
    lines = [b.offset(scores, step * r, F32) for r in range(rows)]
    best = [b.variable(float("-inf"), vector) for _ in lines]
    with b.for_(0, count, lanes) as t:
        for line, most in zip(lines, best, strict=True):
            value = b.load(vector, line, t)
            most.set(b.select(value > most.get(), value, most.get()))
    largest = []
    for most in best:
        top: Operand = b.reduce("reduce_max", most.get())
        nothing = b.eq(top, float("-inf")) & is_guarded
        largest.append(b.splat(b.select(nothing, 0.0, top), lanes))
    scale = b.splat(factor, lanes)
    wide = [b.variable(0.0, F64.with_lanes(lanes)) for _ in lines]
    with b.for_(0, count, _RUN * lanes) as begin:
        sums = [b.variable(0.0, vector) for _ in lines]
        with b.for_(begin, b.min(begin + _RUN * lanes, count), lanes) as t:
            for line, top, total in zip(lines, largest, sums, strict=True):
                below = (b.load(vector, line, t) - top) * scale
                power = _power_of_two(b, below)
                b.store(power, line, t)
                total.set(total.get() + power)
        for total, run in zip(wide, sums, strict=True):
            total.set(total.get() + b.convert(run.get(), F64))
    for r, held in enumerate(wide):
        divisor: Operand = b.convert(b.reduce("reduce_add", held.get()), F32)
        # Powers of no key at all add up to 0, too: what is divided then is the sum of nothing.
        b.store(b.select(b.eq(divisor, 0.0), 1.0, divisor), totals, r)
    return b.program


def _power_of_two(b: Builder, x: Operand) -> Operand:
    """`2^x` of x that is not positive, or NaN: 1 ulp.

    A power that is 0 is chosen, not computed: processors take a hundred times as long for a vector
    with a result that is too small to be a normal number, and masked scores are minus infinity.
    """
    vanishes = x < _LOWEST
    whole = b.unary("round", x)
    rest = x - whole
    total: Operand = b.constant(x.type, _POWERS[-1])
    for coefficient in reversed(_POWERS[:-1]):
        total = b.fma(total, rest, coefficient)
    return b.select(vanishes, 0.0, b.scale(total, whole))
