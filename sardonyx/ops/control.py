"""Operators with graphs inside: If, Loop (for Scan see `scan.py`). They become regions of the plan.

A size of a result that the graphs inside do not settle (the branches differ, a carried value grows)
becomes a symbol that only the end of the region brings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sardonyx.base import errors, integer, sizes
from sardonyx.base.dtypes import BOOL, INT64, DType
from sardonyx.base.errors import InvalidGraph, SardonyxError, message
from sardonyx.base.integer import known_equal
from sardonyx.base.object_types import join
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ops.lists import items_of, only_added_to, unstacked
from sardonyx.ops.registry import Scope, contents, op
from sardonyx.tensor import scalar
from sardonyx.tensor.assumptions import because_of, broadcasts_are_undecided
from sardonyx.tensor.host import CONSTRUCT, call_behind, is_host_call, is_object
from sardonyx.tensor.language import (
    Tensor,
    assume_equal,
    cast,
    known_tensor,
)
from sardonyx.tensor.measuring import LARGEST
from sardonyx.tensor.region import REGIONS, Body, Branches, Carried, Repetition, Sliced
from sardonyx.tensor.symbolic import elements_of, partial_elements_of, remember
from sardonyx.tensor.tensor import Buffer, Call, Shape, buffer, indices, make_call, make_map
from sardonyx.tensor.traverse import topological

#: An outside tensor, and the buffer that stands for it.
Outside = dict[Tensor, Buffer]


def stand_in(tensor: Tensor, outside: Outside) -> Buffer:
    """The buffer that stands for a tensor inside a region."""
    if isinstance(tensor, Buffer):
        return outside.setdefault(tensor, tensor)
    found = outside.get(tensor)
    if found is None:
        found = outside[tensor] = buffer(("outside", tensor), tensor.shape, tensor.dtype)
    return found


def seen_inside(tensor: Tensor, outside: Outside) -> Tensor:
    """How a body sees a tensor from outside: itself if nothing but constants decides it.

    Weights that are constants for a body, too, are packed once.
    """
    if _never_changes(tensor):
        return tensor
    if call_behind(tensor, CONSTRUCT) is not None:
        assert isinstance(tensor, Call)  # noqa: S101 - narrows the type for the checker
        operands = tuple(seen_inside(x, outside) for x in tensor.operands)
        facts = dict(tensor.attributes)
        return make_call(tensor.kernel, operands, tensor.all_outputs, **facts)[0]
    elements = elements_of(tensor)
    if elements is not None:  # as itself it would bring what it reads into the body
        return known_tensor(elements, tensor.shape, tensor.dtype)
    found = stand_in(tensor, outside)
    known = partial_elements_of(tensor)
    if known is not None and found is not tensor:
        remember(found, known)
    return found


def _never_changes(tensor: Tensor) -> bool:
    needed = topological([tensor])
    # A region runs once: its symbols cannot belong to a second one inside.
    if any(isinstance(t, Call) and (t.kernel in REGIONS or is_host_call(t)) for t in needed):
        return False
    return all(t.constant is not None for t in needed if isinstance(t, Buffer))


def scalar_of(x: Tensor, what: str) -> Tensor:
    """A tensor of one element as a scalar."""
    if x.shape != () and sizes.product(x.shape) != 1:
        raise InvalidGraph(message(what, f"A scalar is needed, not {list(x.shape)}"))
    return x if x.shape == () else x.reshape()


def _known_bool(x: Tensor) -> bool | None:
    found = elements_of(x)
    return bool(found[0]) if found is not None and isinstance(found[0], (int, bool)) else None


def results_of(
    scope: Scope,
    kernel: str,
    region: Branches | Repetition,
    outside: Outside,
    outputs: list[tuple[Shape, DType]],
) -> tuple[Tensor, ...]:
    """The results of a region; what its end gives its size is copied where it must be dense."""
    calls = make_call(kernel, tuple(outside), tuple(outputs), region=region)
    for call, final in zip(calls, region.finals, strict=True):
        scope.own(final.values(), call)
    return tuple(
        _view(call) if final else call for call, final in zip(calls, region.finals, strict=True)
    )


def _view(call: Call) -> Tensor:
    return make_map(call.shape, scalar.load(call, indices(call.shape)))


def _final(scope: Scope, result: int, axis: int) -> Dim:
    return sizes.measured(f"{scope.name}:result{result}.{axis}", 0)


def _is_inside(dim: Dim, symbols: set[Dim]) -> bool:
    """Whether a size is made of symbols that mean nothing outside."""
    return any(sizes.of_atom(atom) in symbols for atom in sizes.atoms_of(dim, "symbol"))


# -- If ---------------------------------------------------------------------------------------


def _branch(scope: Scope, graph: Graph, outside: Outside) -> Body | SardonyxError:
    """A branch, or why it makes no sense here: exporters leave branches that are never taken."""
    try:
        return scope.body(graph, [], outside)
    except (InvalidGraph, errors.NotImplemented) as error:
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
    if isinstance(then, SardonyxError):
        if isinstance(otherwise, SardonyxError):
            raise then
        return _OnlyWay(False, where, f"The then_branch cannot be taken: {then}")
    if isinstance(otherwise, SardonyxError):
        return _OnlyWay(True, where, f"The else_branch cannot be taken: {otherwise}")
    if len(then.outputs) != len(otherwise.outputs):
        raise InvalidGraph(message("If", "The branches differ in their number of outputs"))
    if all(a.rank == b.rank for a, b in zip(then.outputs, otherwise.outputs, strict=True)):
        return None
    first = not broadcasts_are_undecided()
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
            return tuple(scope.inline(then_branch if only.first else else_branch))
    then, otherwise = (body for body in bodies if isinstance(body, Body))
    inside = then.symbols | otherwise.symbols
    outputs: list[tuple[Shape, DType]] = []
    finals: list[dict[int, Dim]] = []
    for number, (a, b) in enumerate(zip(then.outputs, otherwise.outputs, strict=True)):
        dtype = join(a.dtype, b.dtype)
        if dtype is None:
            what = f"The branches differ in the type of output {number}"
            raise InvalidGraph(message("If", what, expected=str(a.dtype), got=str(b.dtype)))
        final = {
            axis: _final(scope, number, axis)
            for axis, (d, e) in enumerate(zip(a.shape, b.shape, strict=True))
            if known_equal(d, e) is not True or _is_inside(d, inside)
        }
        outputs.append((tuple(final.get(k, d) for k, d in enumerate(a.shape)), dtype))
        finals.append(final)
    region = Branches(list(outside.values()), finals, decider, then, otherwise)
    return results_of(scope, "if", region, outside, outputs)


# -- Loop, and what Scan shares with it ----------------------------------------------------


class Repeated:
    """A graph that is repeated: finds out which sizes change from iteration to iteration."""

    def __init__(
        self,
        scope: Scope,
        graph: Graph,
        initial: Sequence[Tensor],
        slices: Sequence[Tensor],
        lists: Sequence[int] = (),
    ) -> None:
        self.scope, self.graph = scope, graph
        self.all, self.lists = list(initial), lists
        self.initial = [x for k, x in enumerate(initial) if k not in lists]
        self.slices = list(slices)
        self.counter = sizes.measured(f"{scope.name}:iteration", 0)
        self.changing: list[dict[int, Dim]] = [{} for _ in self.initial]
        self.dtypes = [x.dtype for x in self.initial]
        self.outside: Outside = {}
        self.inside: list[Buffer] = []
        self.body = Body([])

    def settle(self, before: Sequence[Tensor], skipped: int) -> None:
        """Lower the body until the sizes of what is carried fit.

        Args:
            before: The body's inputs before the carried ones.
            skipped: How many outputs come before the carried ones.
        """
        again = True
        while again:
            again = False
            self.outside = {}
            self.inside = [self.input(k, x) for k, x in enumerate(self.initial)]
            rest = iter(self.inside)
            carried = [x if k in self.lists else next(rest) for k, x in enumerate(self.all)]
            self.body = self.scope.body(self.graph, [*before, *carried, *self.slices], self.outside)
            self._put_lists_last(skipped)
            for number, output in enumerate(self.body.outputs[skipped:][: len(self.initial)]):
                again |= self._compare(number, output)

    def _put_lists_last(self, skipped: int) -> None:
        """What the body adds to a list is a slice of a result, after all others."""
        if not self.lists:
            return
        outputs, end = self.body.outputs, skipped + len(self.all)
        kept = [x for k, x in enumerate(outputs[skipped:end]) if k not in self.lists]
        added = [x for k in self.lists for x in items_of(outputs[skipped + k]) or ()]
        self.body.outputs = [*outputs[:skipped], *kept, *outputs[end:], *added]

    def lists_are_even(self) -> bool:
        """Whether all that is added to a list, in any iteration, is a tensor of one shape."""
        own = {s for changing in self.changing for s in changing.values()}
        inside = self.body.symbols | own | {self.counter}
        added = self.body.outputs[len(self.body.outputs) - len(self.lists) :]
        return not any(is_object(x) or any(_is_inside(d, inside) for d in x.shape) for x in added)

    def in_order(self, results: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The results of the region as the node gives them: lists among what is carried."""
        if not self.lists:
            return tuple(results)
        count = len(results) - len(self.lists)
        made = dict(zip(self.lists, map(unstacked, results[count:]), strict=True))
        kept, others = iter(results[: len(self.initial)]), results[len(self.initial) : count]
        return (*(made[k] if k in made else next(kept) for k in range(len(self.all))), *others)

    def input(self, number: int, initial: Tensor) -> Buffer:
        """What the body reads of a carried value."""
        changing = self.changing[number]
        shape = tuple(changing.get(axis, d) for axis, d in enumerate(initial.shape))
        return buffer((self.scope.name, "carried", number), shape, self.dtypes[number])

    def _compare(self, number: int, output: Tensor) -> bool:
        inside, again = self.inside[number], False
        dtype = join(inside.dtype, output.dtype)
        if dtype is None:
            what = f"Carried value {number} changes its type"
            raise InvalidGraph(
                message("Loop", what, expected=str(inside.dtype), got=str(output.dtype))
            )
        if dtype is not inside.dtype:  # more items than those that it began with
            self.dtypes[number] = dtype
            again = True
        if output.rank != inside.rank:
            what = f"Carried value {number} changes its number of axes"
            raise errors.NotImplemented(
                message("Loop", what, expected=str(inside.rank), got=str(output.rank))
            )
        for axis, (d, e) in enumerate(zip(inside.shape, output.shape, strict=True)):
            if axis not in self.changing[number] and known_equal(d, e) is not True:
                name = f"{self.scope.name}:carried{number}.{axis}"
                self.changing[number][axis] = sizes.measured(name, 0)
                again = True
        return again

    def region(
        self,
        trips: Dim,
        condition: Tensor | None,
        goes_on: bool,
        sliced: list[Sliced],
        reverse: Sequence[bool],
        unused_first: int = 0,
    ) -> tuple[Tensor, ...]:
        """The call, once the body is settled.

        Args:
            trips: How often at most.
            condition: Whether to begin at all.
            goes_on: Whether the body's first output says whether to go on.
            sliced: What is read slice by slice.
            reverse: For each result that is made of slices, whether the last one comes first.
            unused_first: How many outputs of the body to drop.
        """
        body = self.body
        body.outputs = body.outputs[unused_first:]
        own = {s for changing in self.changing for s in changing.values()}
        inside = body.symbols | own | {self.counter}
        skip = int(goes_on)
        outputs: list[tuple[Shape, DType]] = []
        finals: list[dict[int, Dim]] = []
        for number, buffer_ in enumerate(self.inside):
            final = {axis: _final(self.scope, number, axis) for axis in self.changing[number]}
            shape = tuple(final.get(k, d) for k, d in enumerate(buffer_.shape))
            outputs.append((shape, buffer_.dtype))
            finals.append(final)
        carried_count = len(self.inside)
        slices = body.outputs[skip + carried_count :]
        undecided = goes_on or condition is not None or trips == LARGEST
        count = sizes.measured(f"{self.scope.name}:count", 0) if undecided and slices else None
        places: list[Dim] = []
        for number, slice_ in enumerate(slices):
            final = {
                axis + 1: _final(self.scope, carried_count + number, axis + 1)
                for axis, d in enumerate(slice_.shape)
                if _is_inside(d, inside)
            }
            if count is not None:
                final[0] = count
            shape = (trips, *slice_.shape)
            outputs.append((tuple(final.get(k, d) for k, d in enumerate(shape)), slice_.dtype))
            finals.append(final)
            last = sizes.add(trips, sizes.multiply(sizes.add(self.counter, 1), -1))
            places.append(last if reverse and reverse[number] else self.counter)
        carried = [
            Carried(stand_in(x, self.outside), b, changing)
            for x, b, changing in zip(self.initial, self.inside, self.changing, strict=True)
        ]
        begin = None if condition is None else stand_in(condition, self.outside)
        region = Repetition(
            list(self.outside.values()), finals, trips, self.counter, begin, goes_on, carried,
            sliced, places, count, body,
        )  # fmt: skip
        return results_of(self.scope, "loop", region, self.outside, outputs)


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
        (most,) = contents(scalar_of(trips, "Loop").reshape(1), "The number of iterations")
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
        repeated.body.outputs[0] = scalar_of(repeated.body.outputs[0], "Loop")
    elif most == LARGEST:
        raise InvalidGraph(message("Loop", "Nothing ends it: no number, and no condition"))
    results = repeated.region(most, begin, goes_on, [], (), 0 if goes_on else 1)
    return repeated.in_order(results)


def _settled(
    scope: Scope, body: Graph, initial: Sequence[Tensor], lists: Sequence[int]
) -> Repeated:
    repeated = Repeated(scope, body, initial, [], lists)
    number = known_tensor((repeated.counter,), (), INT64)
    repeated.settle([number, known_tensor((True,), (), BOOL)], 1)
    return repeated
