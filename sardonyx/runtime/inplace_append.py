"""Runs whose outputs continue inputs, such as the cache of a decoder: see `plan.inplace_append`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.base import sizes
from sardonyx.base.errors import ContradictingSizes
from sardonyx.base.sizes import Dim
from sardonyx.plan.plan import Appended
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.growable_buffer import GrowableBuffer, GrowableBuffers, capacity_for
from sardonyx.runtime.storage import DeviceArray, OutputPlacement, Tensor
from sardonyx.store.model_record import ModelRecord

#: Runs an executable.
Run = Callable[[Executable, Sequence[Any], OutputPlacement], list[Any]]


class _Claim:
    """Rows behind a value that a run is going to write."""

    __slots__ = ("count", "length", "buffer")

    def __init__(self, buffer: GrowableBuffer, length: int, count: int) -> None:
        self.buffer, self.length, self.count = buffer, length, count


class Appender:
    """Lets runs write outputs behind the inputs that they continue.

    A run does so if an input is a value that an earlier run gave, or that was made with room, and
    each such output is wanted in new memory of the device, or in the value that is the input.

    Args:
        record: Of the model.
        growable_buffers: The provider's.
        executable: Gives what runs the plan for it, compiled when it is first asked for.
    """

    def __init__(
        self,
        record: ModelRecord,
        growable_buffers: GrowableBuffers,
        executable: Callable[[], Executable | None],
    ) -> None:
        self._appended, self._growable_buffers, self._executable = (
            record.appended,
            growable_buffers,
            executable,
        )
        inputs, outputs = record.plan.inputs, record.plan.outputs
        self._specs = inputs
        self._outputs = {a.output: a for a in self._appended}
        #: By the size that grows, in the order of the inputs that bring it.
        self._groups: dict[Dim, list[Appended]] = {}
        self._counts: dict[int, Dim] = {}
        for a in self._appended:
            length = inputs[a.input].dims[a.axis]
            self._groups.setdefault(length, []).append(a)
            whole = outputs[a.output].dims[a.axis]
            self._counts[a.output] = whole - length
        used = {atom.name for d in self._counts.values() for atom in sizes.leaves_of(d)}
        self._symbols: list[tuple[str, int, int]] = []
        for k, spec in enumerate(inputs):
            for axis, d in enumerate(spec.dims):
                atom = sizes.as_atom(d)
                if atom is not None and atom.kind == "symbol" and atom.name in used:
                    used.discard(atom.name)
                    self._symbols.append((atom.name, k, axis))
        self._is_known = not used

    def run(self, feeds: Sequence[Any], wanted: OutputPlacement, run: Run) -> list[Any] | None:
        """The results; None if the run is none of these, and nothing was done."""
        if not self._is_asked(feeds, wanted):
            return None
        executable = self._executable()
        if executable is None or executable.facts.growable_buffers is None:
            return None
        claims: dict[int, _Claim] = {}
        try:
            lengths = [self._claim(group, feeds, claims) for group in self._groups.values()]
            given = list(feeds)
            for a in self._appended:
                given[a.input] = claims[a.output].buffer.memory
            targets = [t for k, t in enumerate(wanted.targets) if k not in self._outputs]
            written = [c.buffer.memory for c in claims.values()]
            inside = OutputPlacement(targets, wanted.stream, wanted.waits, written)
            results = iter(run(executable, [*given, *lengths], inside))
        except BaseException as error:
            for claim in claims.values():
                claim.buffer.release(claim.length, claim.count)
            if isinstance(error, ContradictingSizes):
                return None  # the usual way says what is wrong, or has a plan for such feeds
            raise
        return [
            next(results) if k not in claims else self._value(feeds, wanted, k, claims[k])
            for k in range(len(wanted.targets))
        ]

    def wrapped(self, results: list[Any], wanted: OutputPlacement) -> list[Any]:
        """Results of a usual run; what may be continued knows where it lies."""
        return [
            self._growable_buffers.wrapped(x, self._outputs[k].axis)
            if k in self._outputs and self._growable_buffers.is_own(wanted.targets[k])
            else x
            for k, x in enumerate(results)
        ]

    def _is_asked(self, feeds: Sequence[Any], wanted: OutputPlacement) -> bool:
        if not self._is_known or len(feeds) != len(self._specs):
            return False
        is_continued = False
        for a in self._appended:
            feed, target, spec = feeds[a.input], wanted.targets[a.output], self._specs[a.input]
            is_same = target is feed and isinstance(feed, DeviceArray)
            if not is_same and not self._growable_buffers.is_own(target):
                return False
            if not isinstance(feed, (np.ndarray, DeviceArray)) or not _fits(feed, spec, a.axis):
                return False
            is_continued = is_continued or self._growable_buffers.found(feed) is not None
        lengths = [{feeds[a.input].shape[a.axis] for a in g} for g in self._groups.values()]
        return is_continued and all(len(found) == 1 for found in lengths)

    def _claim(
        self, group: Sequence[Appended], feeds: Sequence[Any], claims: dict[int, _Claim]
    ) -> Tensor:
        """Have room behind all inputs of one length; gives an array of that length."""
        length = int(feeds[group[0].input].shape[group[0].axis])
        symbols = {name: feeds[k].shape[axis] for name, k, axis in self._symbols}
        counts = [sizes.evaluate(self._counts[a.output], symbols) for a in group]
        growable_buffers = [self._growable_buffers.found(feeds[a.input]) for a in group]
        here = [
            _Claim(buffer, length, count)
            for a, buffer, count in zip(group, growable_buffers, counts, strict=True)
            if buffer is not None and buffer.axis == a.axis and buffer.claim(length, count)
        ]
        if len(here) < len(group) or len({c.buffer.capacity for c in here}) > 1:
            for claim in here:
                claim.buffer.release(length, claim.count)
            capacity = capacity_for(length + max(counts))
            here = [
                _Claim(self._growable_buffers.made(feeds[a.input], a.axis, capacity), length, count)
                for a, count in zip(group, counts, strict=True)
            ]
            for claim in here:
                claim.buffer.claim(length, claim.count)
        claims.update((a.output, claim) for a, claim in zip(group, here, strict=True))
        memory = here[0].buffer.memory
        if isinstance(memory, DeviceArray):
            return memory.as_shape((length,), np.dtype(np.uint8))
        return memory.reshape(-1).view(np.uint8)[:length]

    def _value(
        self, feeds: Sequence[Any], wanted: OutputPlacement, output: int, claim: _Claim
    ) -> Tensor:
        """An output: the input itself, if it was to become longer."""
        feed: Tensor = feeds[self._outputs[output].input]
        length = claim.length + claim.count
        if wanted.targets[output] is feed:
            self._growable_buffers.extend(feed, claim.buffer, length)
            return feed
        return self._growable_buffers.value(claim.buffer, length)


def _fits(feed: Tensor, spec: Any, axis: int) -> bool:
    """Whether a feed is of an input's type and rank, and has elements apart from the axis."""
    if len(feed.shape) != len(spec.dims) or feed.dtype != spec.dtype.stored:
        return False
    return all(d > 0 for k, d in enumerate(feed.shape) if k != axis)
