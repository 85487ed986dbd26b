"""What branches and loops share: values from outside, results, and the body that settles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sardonyx.base import errors, sizes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.integer import known_equal
from sardonyx.base.object_types import join
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ops.core.contents import ChangingRank
from sardonyx.ops.core.handed_on import handed_on
from sardonyx.ops.core.lists import items_of, unstacked
from sardonyx.ops.core.scope import Scope
from sardonyx.tensor import scalar
from sardonyx.tensor.composition import innermost
from sardonyx.tensor.host import CONSTRUCT, call_behind, is_host_call, is_object
from sardonyx.tensor.language import (
    Tensor,
    known_tensor,
)
from sardonyx.tensor.measuring import LARGEST
from sardonyx.tensor.region import REGIONS, Body, Branches, Carried, Repetition, Sliced
from sardonyx.tensor.symbolic import elements_of, partial_elements_of, remember
from sardonyx.tensor.tensor import Buffer, Call, Shape, buffer, indices, make_call, make_map
from sardonyx.tensor.traverse import topological

#: An outside tensor, and the buffer that stands for it.
Outside = dict[Tensor, Buffer]

#: (inputs, buffers for what is outside) -> the body of a region, as `Scope.body` makes it.
MakeBody = Callable[[Sequence[Tensor], Outside], Body]


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


def final_size(scope: Scope, result: int, axis: int) -> Dim:
    """The symbol of a size of a result that only the end of the region brings."""
    return sizes.measured(f"{scope.name}:result{result}.{axis}", 0)


def is_inside(dim: Dim, symbols: set[Dim]) -> bool:
    """Whether a size is made of symbols that mean nothing outside."""
    return any(sizes.of_atom(atom) in symbols for atom in sizes.leaves_of(dim))


class Repeated:
    """What is repeated: finds out what changes from iteration to iteration.

    A carried value that the body gives back as it was is its first value in every iteration, and
    the result. So the body reads it as it reads what is outside, and it is not carried at all.

    Attributes:
        make_body: Makes the body, given what it reads.
        captured: Which of what is carried never changes.

    Args:
        scope: What surrounds the node.
        graph: What is repeated: a graph, or what makes the body given what it reads.
        initial: What is carried, as it is before the first iteration.
        slices: What an iteration reads of tensors that are read slice by slice.
        lists: Which of what is carried are lists that are only added to.
    """

    def __init__(
        self,
        scope: Scope,
        graph: Graph | MakeBody,
        initial: Sequence[Tensor],
        slices: Sequence[Tensor],
        lists: Sequence[int] = (),
    ) -> None:
        self.scope = scope
        self.graph = graph
        self.make_body: MakeBody = partial(scope.body, graph) if isinstance(graph, Graph) else graph
        self.all, self.lists = list(initial), lists
        self.initial = [x for k, x in enumerate(initial) if k not in lists]
        self.slices = list(slices)
        self.counter = sizes.measured(f"{scope.name}:iteration", 0)
        self.changing: list[dict[int, Dim]] = [{} for _ in self.initial]
        self.dtypes = [x.dtype for x in self.initial]
        self.captured: set[int] = set()
        self.outside: Outside = {}
        self.inside: list[Buffer] = []
        self.body = Body([])

    def settle(self, before: Sequence[Tensor], skipped: int) -> None:
        """Lower the body until the sizes of what is carried fit, and what never changes is read.

        Args:
            before: The body's inputs before the carried ones.
            skipped: How many outputs come before the carried ones.
        """
        told = self._told(len(before), skipped)
        self.captured, barred = set(told), set[int]()
        again = True
        while again:
            given = self._lower(before, skipped)
            outputs = dict(enumerate(self.body.outputs[skipped:][: len(self.initial)]))
            # A branch was taken for granted, and what is known by now decides for the other one.
            wrong = {
                k for k in self.captured - told if innermost(outputs[k]) is not innermost(given[k])
            }
            barred |= wrong
            self.captured -= wrong
            carried = [k for k in outputs if k not in self.captured]
            again = any([self._compare(k, outputs[k]) for k in carried]) or bool(wrong)
            if not again:  # only what holds at the sizes that are left is sure
                found = {k for k in carried if self._is_unchanged(k, outputs[k])} - barred
                self.captured |= found
                again = bool(found)
        self.body.outputs = [
            x for k, x in enumerate(self.body.outputs) if k - skipped not in self.captured
        ]
        self.inside = [x for k, x in enumerate(self.inside) if k not in self.captured]

    def _told(self, before: int, skipped: int) -> set[int]:
        """What the graph hands on, as `settle` counts."""
        if not isinstance(self.graph, Graph):
            return set()
        known = handed_on(self.graph, range(before, before + len(self.all)), skipped)
        others = (k for k in range(len(self.all)) if k not in self.lists)
        return {number for number, k in enumerate(others) if k in known}

    def _lower(self, before: Sequence[Tensor], skipped: int) -> list[Tensor]:
        """Lower the body as what is known by now lets it be; gives what it reads as carried."""
        self.outside = {}
        self.inside = [self.input(k, x) for k, x in enumerate(self.initial)]
        given = [
            self._seen(x) if k in self.captured else self.inside[k]
            for k, x in enumerate(self.initial)
        ]
        rest = iter(given)
        carried = [x if k in self.lists else next(rest) for k, x in enumerate(self.all)]
        self.body = self.make_body([*before, *carried, *self.slices], self.outside)
        self._put_lists_last(skipped)
        return given

    def _seen(self, initial: Tensor) -> Tensor:
        """How the body sees a first value that it reads as it reads what is outside."""
        return initial if self.scope.by_shapes else seen_inside(initial, self.outside)

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
        added = self.body.outputs[len(self.body.outputs) - len(self.lists) :]
        return not any(is_object(x) or self.changes_inside(x.shape) for x in added)

    def changes_inside(self, shape: Sequence[Dim]) -> bool:
        """Whether a size may be another one in each iteration."""
        own = {s for changing in self.changing for s in changing.values()}
        inside = self.body.symbols | own | {self.counter}
        return any(is_inside(d, inside) for d in shape)

    def _in_order(self, results: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The results of the region as the node gives them, with what never changes, and lists."""
        changed, end = len(self.inside), len(results) - len(self.lists)
        made = dict(zip(self.lists, map(unstacked, results[end:]), strict=True))
        rest = iter(results[:changed])
        kept = iter([x if k in self.captured else next(rest) for k, x in enumerate(self.initial)])
        carried = (made[k] if k in made else next(kept) for k in range(len(self.all)))
        return (*carried, *results[changed:end])

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
            ) from ChangingRank(what, self.scope.name)
        for axis, (d, e) in enumerate(zip(inside.shape, output.shape, strict=True)):
            if axis not in self.changing[number] and known_equal(d, e) is not True:
                name = f"{self.scope.name}:carried{number}.{axis}"
                self.changing[number][axis] = sizes.measured(name, 0)
                again = True
        return again

    def _is_unchanged(self, number: int, output: Tensor) -> bool:
        """Whether what the body gives is what it was given, or what was there before the loop."""
        found = innermost(output)
        if found is self.inside[number]:
            return True
        return isinstance(found, Buffer) and found is self._seen(self.initial[number])

    def region(
        self,
        trips: Dim,
        condition: Tensor | None,
        goes_on: bool,
        sliced: list[Sliced],
        reverse: Sequence[bool],
        unused_first: int = 0,
    ) -> tuple[Tensor, ...]:
        """What the node gives, once the body is settled.

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
        kept = [k for k in range(len(self.initial)) if k not in self.captured]
        for number, buffer_ in zip(kept, self.inside, strict=True):
            final = {axis: final_size(self.scope, number, axis) for axis in self.changing[number]}
            shape = tuple(final.get(k, d) for k, d in enumerate(buffer_.shape))
            outputs.append((shape, buffer_.dtype))
            finals.append(final)
        slices = body.outputs[skip + len(kept) :]
        undecided = goes_on or condition is not None or trips == LARGEST
        count = sizes.measured(f"{self.scope.name}:count", 0) if undecided and slices else None
        places: list[Dim] = []
        for number, slice_ in enumerate(slices):
            if is_object(slice_):
                what = "What iterations give is joined along a new axis"
                raise InvalidGraph(message("body", what, expected="tensors", got=str(slice_.dtype)))
            final = {
                axis + 1: final_size(self.scope, len(self.initial) + number, axis + 1)
                for axis, d in enumerate(slice_.shape)
                if is_inside(d, inside)
            }
            if count is not None:
                final[0] = count
            shape = (trips, *slice_.shape)
            outputs.append((tuple(final.get(k, d) for k, d in enumerate(shape)), slice_.dtype))
            finals.append(final)
            last = trips - (self.counter + 1)
            places.append(last if reverse and reverse[number] else self.counter)
        carried = [
            Carried(stand_in(self.initial[k], self.outside), inside_, self.changing[k])
            for k, inside_ in zip(kept, self.inside, strict=True)
        ]
        begin = None if condition is None else stand_in(condition, self.outside)
        region = Repetition(
            list(self.outside.values()), finals, trips, self.counter, begin, goes_on, carried,
            sliced, places, count, body,
        )  # fmt: skip
        results = results_of(self.scope, "loop", region, self.outside, outputs)
        return self._in_order(results)
