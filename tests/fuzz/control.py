"""Rules for branches and loops, to any depth, with values from around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import helper

from tests.fuzz.builder import Builder, Declined
from tests.fuzz.values import RUNS, Extent, Shape, Value, fixed, free, numpy_dtype, volume

#: How deep graphs may lie in each other.
_DEPTH = 3


def _declared(v: Value) -> object:
    kind = helper.np_dtype_to_tensor_dtype(numpy_dtype(v.dtype))
    return helper.make_tensor_value_info(v.name, kind, [None] * v.rank)


def _graph(inner: Builder, inputs: Sequence[Value], outputs: Sequence[Value]) -> object:
    """The graph of a body; every output is a value of its own that the body computes."""
    results = [inner.node("Identity", [v], [v.like()]) for v in outputs]
    name = inner.name("g")
    declared = list(map(_declared, results))
    return helper.make_graph(inner.nodes, name, list(map(_declared, inputs)), declared)


def _fill(g: Builder, most: int) -> Builder:
    from tests.fuzz.graphs import fill

    inner = Builder(g.random, g)
    fill(inner, g.number(0, min(most, max(g.room - 3, 0))))
    return inner


def condition(g: Builder) -> Value:
    """A scalar bool: fed, or computed from the data."""
    fitting = [v for v in g.values if v.dtype == "b1" and v.rank == 0]
    if fitting and g.chance(0.4):
        return g.random.choice(fitting)
    if g.chance(0.4):
        flags = [np.array(g.chance(0.5)) for _ in range(RUNS)]
        return g.feed((), "b1", True, flags)
    x = g.pick(lambda v: v.exact and v.dtype in ("f4", "i8", "f8") and volume(v.shape) < 500)
    if x.rank:
        if any(e.least < 1 for e in x.shape):
            raise Declined
        x = g.node("ReduceMax", [x], [x.like(shape=())], keepdims=0)
    limit = g.constant(np.array(g.number(-1, 3), x.dtype))
    return g.node("Greater", [x, limit], [Value("", "b1", ())])


def _merged(a: Value, b: Value) -> Value:
    """What is either of two values."""
    shape = tuple(
        d if d == e else free(tuple(map(max, d.at, e.at)))
        for d, e in zip(a.shape, b.shape, strict=True)
    )
    bound = max(a.bound, b.bound)
    return Value("", a.dtype, shape, a.exact and b.exact, a.whole and b.whole, bound)


def branches(g: Builder) -> Value:
    if g.depth >= _DEPTH:
        raise Declined
    decider = condition(g)
    then, otherwise = _fill(g, 4), _fill(g, 4)
    count = g.number(1, 2)
    pairs = []
    for _ in range(count):
        a = then.pick()
        pairs.append((a, otherwise.pick(lambda v, a=a: v.dtype == a.dtype and v.rank == a.rank)))
    results = [_merged(a, b) for a, b in pairs]
    graphs = {
        "then_branch": _graph(then, [], [a for a, _ in pairs]),
        "else_branch": _graph(otherwise, [], [b for _, b in pairs]),
    }
    return g.node("If", [decider], results, **graphs)


def _squashed(inner: Builder, v: Value) -> Value:
    """A value that does not grow from iteration to iteration."""
    if v.dtype in ("b1", "u1"):
        return v
    if v.exact and (v.whole or not v.is_float):
        low, high = (inner.constant(np.array(n, v.dtype)) for n in (-5, 5))
        return inner.node("Clip", [v, low, high], [v.like(bound=5.0)])
    if not v.is_float:
        raise Declined
    return inner.node("Tanh", [v], [v.like(exact=False, whole=False, bound=1.0)])


def _carried(g: Builder, count: int) -> list[Value]:
    return [g.pick(lambda v: not any(e.free for e in v.shape)) for _ in range(count)]


def _inside(inner: Builder, initial: Value, grows: bool) -> Value:
    """The input of a body for a carried value."""
    shape = initial.shape
    if grows:
        shape = (free(tuple(n + 12 for n in shape[0].at)), *shape[1:])
    squashes = initial.dtype not in ("b1", "u1")
    bound = max(initial.bound, 5.0) if squashes else initial.bound
    exact = initial.is_exact_whole
    return inner.add(Value("", initial.dtype, shape, exact, exact and initial.whole, bound))


def _next(inner: Builder, state: Value, initial: Value, grows: bool) -> Value:
    """What a carried value becomes."""
    if grows:
        others = tuple(state.shape[1:])
        part = inner.pick(
            lambda v: (
                v.dtype == state.dtype and v.rank == state.rank and v.shape[1:] == others
                and max(v.shape[0].at) <= 4 and v.exact >= state.exact and v.whole >= state.whole
            )
        )  # fmt: skip
        both = inner.node(
            "Concat", [state, part], [state.like(bound=max(state.bound, part.bound))], axis=0
        )
        return _squashed(inner, both)

    def fits(v: Value) -> bool:
        return (
            v.dtype == state.dtype and v.shape == state.shape
            and v.exact >= state.exact and v.whole >= state.whole
        )  # fmt: skip

    return _squashed(inner, inner.pick(fits))


def _trips(g: Builder) -> tuple[Value | None, Extent]:
    """How often a loop runs: known, fed, or a size."""
    at = tuple(g.number(0, 3) for _ in range(RUNS))
    kind = g.random.choice(["known", "fed", "size"])
    if kind == "known":
        return g.constant(np.array(at[0], np.int64)), fixed(at[0])
    if kind == "fed":
        return g.feed((), "i8", True, [np.array(n, np.int64) for n in at]), Extent(at)
    small = [e for v in g.values for e in v.shape if max(e.at) <= 4 and not e.free]
    if not small:
        raise Declined
    extent = g.random.choice(small)
    none = g.constant(np.array([0], np.int64))
    count = g.node("Squeeze", [g.sizes([extent]), none], [Value("", "i8", (), bound=9.0)])
    return count, extent


def loop(g: Builder) -> Value:
    if g.depth >= _DEPTH:
        raise Declined
    trips, extent = _trips(g)
    initial = _carried(g, g.number(1, 2))
    begin = condition(g) if g.chance(0.2) else None
    inner = Builder(g.random, g)
    number = inner.add(Value("", "i8", (), bound=9.0))
    going = inner.add(Value("", "b1", ()))
    grows = [v.rank > 0 and max(v.shape[0].at) < 20 and g.chance(0.3) for v in initial]
    states = [_inside(inner, v, grow) for v, grow in zip(initial, grows, strict=True)]
    inner.made.clear()
    from tests.fuzz.graphs import fill

    fill(inner, g.number(0, min(5, max(g.room - 6, 0))))
    following = [_next(inner, *each) for each in zip(states, initial, grows, strict=True)]
    stacked = [inner.pick(lambda v: volume(v.shape) < 200) for _ in range(g.number(0, 2))]
    inside = {e for s in states for e in s.shape if e.free}
    stacked = [v for v in stacked if not any(e.free for e in v.shape) and not inside & set(v.shape)]
    on = condition(inner) if g.chance(0.3) else going
    stops = on is not going or begin is not None
    results = [
        s.like(shape=tuple(_outside(e, 0) for e in s.shape), bound=max(s.bound, 5.0))
        for s in states
    ]
    rows = free(extent.at) if stops else extent
    results += [v.like(shape=(rows, *v.shape)) for v in stacked]
    inputs = [number, going, *states]
    body = _graph(inner, inputs, [on, *following, *stacked])
    operands = [trips, begin, *initial]
    return g.node("Loop", operands, results, body=body)


def _outside(extent: Extent, _: int) -> Extent:
    return free(extent.at) if extent.free else extent


def scan(g: Builder) -> Value:
    if g.depth >= _DEPTH:
        raise Declined
    source = g.pick(lambda v: v.rank > 0 and max(v.shape[0].at) <= 9 and not v.shape[0].free)
    extent = source.shape[0]
    sources = [source]
    if g.chance(0.4):
        sources.append(g.pick(lambda v: v.rank > 0 and v.shape[0] == extent))
    initial = _carried(g, g.number(0, 1))
    inner = Builder(g.random, g)
    states = [_inside(inner, v, False) for v in initial]
    slices = [inner.add(v.like(shape=v.shape[1:])) for v in sources]
    inner.made.clear()
    from tests.fuzz.graphs import fill

    fill(inner, g.number(0, min(5, max(g.room - 6, 0))))
    following = [_next(inner, *each, False) for each in zip(states, initial, strict=True)]
    stacked = [inner.pick(lambda v: volume(v.shape) < 200) for _ in range(g.number(1, 2))]
    if any(e.free for v in stacked for e in v.shape):
        raise Declined
    results: list[Value] = [s.like(bound=max(s.bound, 5.0)) for s in states]
    shapes: list[Shape] = [(extent, *v.shape) for v in stacked]
    results += [v.like(shape=s) for v, s in zip(stacked, shapes, strict=True)]
    body = _graph(inner, [*states, *slices], [*following, *stacked])
    ways = {
        "scan_input_directions": [g.number(0, 1) for _ in sources],
        "scan_output_directions": [g.number(0, 1) for _ in stacked],
    }
    operands = [*initial, *sources]
    return g.node("Scan", operands, results, body=body, num_scan_inputs=len(sources), **ways)


#: Rule, how often.
RULES = [(branches, 4), (loop, 5), (scan, 4)]
