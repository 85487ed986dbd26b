"""Operators with graphs inside: If, Loop (for Scan see `scan.py`). They become regions of the plan.

A size of a result that the graphs inside do not settle (the branches differ, a carried value grows)
becomes a symbol that only the end of the region brings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from sardonyx.base import errors, integer
from sardonyx.base.dtypes import BOOL, INT64, DType
from sardonyx.base.errors import InvalidGraph, SardonyxError, message
from sardonyx.base.integer import known_equal
from sardonyx.base.object_types import join
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ops.core.contents import contents, decided_by_data
from sardonyx.ops.core.lists import only_added_to
from sardonyx.ops.core.regions import Outside, Repeated, final_size, is_inside, results_of, stand_in
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.core.scope import Scope
from sardonyx.tensor.assumptions import (
    WITHOUT_PLAN,
    attempt,
    because_of,
    branches_are_decided,
    broadcasts_are_undecided,
)
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    cast,
    known_tensor,
)
from sardonyx.tensor.measuring import LARGEST
from sardonyx.tensor.region import Body, Branches
from sardonyx.tensor.symbolic import elements_of
from sardonyx.tensor.tensor import Buffer, Shape

Result = TypeVar("Result")


def _known_bool(x: Tensor) -> bool | None:
    found = elements_of(x)
    return bool(found[0]) if found is not None and isinstance(found[0], (int, bool)) else None


# -- If ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Guess:
    """Which of two branches that differ in their number of axes is planned; whether there are."""

    second: bool = False
    made: bool = False


_guess: ContextVar[_Guess | None] = ContextVar("guess", default=None)


def _either_way(make: Callable[[], Result]) -> Result:
    """What `make` gives, which lowers a graph inside.

    If the graph makes no sense after the first of two branches that differ in their number of
    axes, which is what it is taken for, then after the second one.
    """
    around = _guess.get()
    if broadcasts_are_undecided() or (around is not None and around.second):
        return make()
    guess = _Guess()
    token = _guess.set(guess)
    try:
        with attempt():
            return make()
    except (InvalidGraph, errors.NotImplemented):
        if not guess.made:
            raise
        guess.second = True
        return make()
    finally:
        _guess.reset(token)
        if around is not None:
            around.made |= guess.made


def _branch(scope: Scope, graph: Graph, outside: Outside) -> Body | SardonyxError:
    """A branch, or why it makes no sense here: exporters leave branches that are never taken."""
    try:
        return _either_way(lambda: scope.body(graph, [], outside))
    except (InvalidGraph, errors.Fail, errors.NotImplemented) as error:
        if branches_are_decided() and decided_by_data(error) is not None:
            raise
        return error


class _OnlyWay(NamedTuple):
    """The branch that a plan is made for, where it can be made for one alone.

    Attributes:
        first: Whether it is the first one.
        where: Who takes for granted that it is taken. A more general plan does without what `If`
            assumes; where a branch makes no sense, it would not help.
        reason: Why the other one cannot be taken.
    """

    first: bool
    where: str
    reason: str


def _only_way(scope: Scope, bodies: Sequence[Body | SardonyxError]) -> _OnlyWay | None:
    """Which branch the plan is made for; None: for both.

    Branches that differ in their number of axes come from a squeeze of an axis that the exporter
    did not know: the first one squeezes.
    """
    then, otherwise = bodies
    where = f"node {scope.name} (If)"
    if isinstance(then, SardonyxError) and isinstance(otherwise, SardonyxError):
        raise otherwise if decided_by_data(then) is None and decided_by_data(otherwise) else then
    for error, first in ((then, False), (otherwise, True)):
        if isinstance(error, SardonyxError):
            what = f"The {'else' if first else 'then'}_branch cannot be taken: {error}"
            has_plan = decided_by_data(error) is None
            return _OnlyWay(first, where if has_plan else f"{WITHOUT_PLAN}{where}", what)
    assert isinstance(then, Body) and isinstance(otherwise, Body)  # noqa: S101, PT018 - narrows
    if len(then.outputs) != len(otherwise.outputs):
        raise InvalidGraph(message("If", "The branches differ in their number of outputs"))
    if all(a.rank == b.rank for a, b in zip(then.outputs, otherwise.outputs, strict=True)):
        return None
    guess = _guess.get()
    if guess is not None:
        guess.made = True
    first = not broadcasts_are_undecided() and not (guess is not None and guess.second)
    what = f"The branches of {where} differ in their number of axes, and one is planned"
    return _OnlyWay(first, "If", what)


@op("If", 1, 11, 13, 16, 19, 21, 23, 24, flags=("strings", "objects"))
def if_1(
    condition: Tensor, *, then_branch: Graph, else_branch: Graph, scope: Scope
) -> tuple[Tensor, ...]:
    """The outputs of one of two graphs."""
    condition = scalar_of(cast(condition, BOOL), "If")
    known = _known_bool(condition)
    if known is not None:
        return tuple(scope.inline(then_branch if known else else_branch))
    outside: Outside = {}
    decider = stand_in(condition, outside)
    bodies = [_branch(scope, graph, outside) for graph in (then_branch, else_branch)]
    only = _only_way(scope, bodies)
    if only is not None:
        # It holds for as long as the condition says so; for other feeds there is the general plan.
        (taken,) = contents(cast(condition, INT64).reshape(1), "The condition", 0)
        assume_equal(taken, int(only.first), only.where, only.reason)
        with because_of(only.where):
            chosen = then_branch if only.first else else_branch
            return tuple(_either_way(lambda: scope.inline(chosen)))
    then, otherwise = (body for body in bodies if isinstance(body, Body))
    inside = then.symbols | otherwise.symbols
    same = _same_either_way(then, otherwise, outside, inside)
    for body in (then, otherwise):
        body.outputs = [x for k, x in enumerate(body.outputs) if k not in same]
    outputs: list[tuple[Shape, DType]] = []
    finals: list[dict[int, Dim]] = []
    count = len(then.outputs) + len(same)
    numbers = [k for k in range(count) if k not in same]
    for number, a, b in zip(numbers, then.outputs, otherwise.outputs, strict=True):
        dtype = join(a.dtype, b.dtype)
        if dtype is None:
            what = f"The branches differ in the type of output {number}"
            raise InvalidGraph(message("If", what, expected=str(a.dtype), got=str(b.dtype)))
        final = {
            axis: final_size(scope, number, axis)
            for axis, (d, e) in enumerate(zip(a.shape, b.shape, strict=True))
            if known_equal(d, e) is not True or is_inside(d, inside)
        }
        outputs.append((tuple(final.get(k, d) for k, d in enumerate(a.shape)), dtype))
        finals.append(final)
    region = Branches(list(outside.values()), finals, decider, then, otherwise)
    results = iter(results_of(scope, "if", region, outside, outputs))
    return tuple(same[k] if k in same else next(results) for k in range(count))


def _same_either_way(
    then: Body, otherwise: Body, outside: Outside, inside: set[Dim]
) -> dict[int, Tensor]:
    """By number, outputs that both branches only hand on, as they are outside."""
    seen: dict[Tensor, Tensor] = {stand_in_: x for x, stand_in_ in outside.items()}
    found: dict[int, Tensor] = {}
    for number, (a, b) in enumerate(zip(then.outputs, otherwise.outputs, strict=True)):
        if a is not b:
            continue
        known = elements_of(a)
        if a in seen:
            found[number] = seen[a]
        elif isinstance(a, Buffer) and a.constant is not None:
            found[number] = a
        elif known is not None and not any(is_inside(d, inside) for d in (*a.shape, *known)):
            found[number] = known_tensor(known, a.shape, a.dtype)
    return found


# -- Loop, and what Scan shares with it ----------------------------------------------------


@op("Loop", 1, 11, 13, 16, 19, 21, 23, 24, flags=("strings", "objects"))
def loop_1(
    trips: Tensor | None = None,
    condition: Tensor | None = None,
    *initial: Tensor,
    body: Graph,
    scope: Scope,
) -> tuple[Tensor, ...]:
    """A graph again and again: so often, or as long as it says."""
    most: Dim = LARGEST
    if trips is not None:
        # Any number will do: a loop that ends by its condition may be given the largest one.
        given = scalar_of(trips, "Loop").reshape(1)
        (most,) = contents(given, "The number of iterations", nearest=True)
        most = integer.maximum(integer.minimum(most, LARGEST), 0)
    begin = None if condition is None else scalar_of(cast(condition, BOOL), "Loop")
    if begin is not None:
        known = _known_bool(begin)
        if known is False:
            most = 0
        begin = begin if known is None else None
    repeated = _settled(scope, body, initial, only_added_to(body, initial))
    if not repeated.lists_are_even():
        repeated = _settled(scope, body, initial, ())
    going = _known_bool(repeated.body.outputs[0])
    if going is False:
        most = integer.minimum(most, 1)
    goes_on = going is None
    if goes_on:
        repeated.body.outputs[0] = _one_bool(repeated)
    elif most == LARGEST:
        raise InvalidGraph(message("Loop", "Nothing ends it: no number, and no condition"))
    return repeated.region(most, begin, goes_on, [], (), 0 if goes_on else 1)


def _one_bool(repeated: Repeated) -> Tensor:
    """The body's condition, as a scalar."""
    condition = repeated.body.outputs[0]
    if condition.dtype is not BOOL or repeated.changes_inside(condition.shape):
        got = f"{condition.dtype}{list(condition.shape)}"
        what = "The body's first output says whether to go on"
        raise InvalidGraph(message("Loop", what, expected="one bool", got=got))
    return scalar_of(condition, "Loop")


def _settled(
    scope: Scope, body: Graph, initial: Sequence[Tensor], lists: Sequence[int]
) -> Repeated:
    repeated = Repeated(scope, body, initial, [], lists)
    number = known_tensor((repeated.counter,), (), INT64)
    repeated.settle([number, known_tensor((True,), (), BOOL)], 1)
    return repeated
