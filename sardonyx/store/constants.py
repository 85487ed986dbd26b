"""The constants of a plan: weights as the file has them, and what kernels make of them once.

They are made piece by piece, so that a model's weights are never in memory twice: each preparation
reads its weights into memory that the next one uses again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from sardonyx.base import dtypes, errors
from sardonyx.base.errors import message
from sardonyx.base.interrupt import checkpoint
from sardonyx.plan.plan import Plan
from sardonyx.runtime.arena import aligned_array
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.cancel import CancelFlag
from sardonyx.runtime.host_calls import Strings
from sardonyx.runtime.pool import Pool
from sardonyx.runtime.storage import Array
from sardonyx.store.model_record import ConstantPlace
from sardonyx.store.preparation import Preparation, Recipe, Stored, size_bytes

_ALIGN = 64
#: Memory of which so small a part is needed next is given back.
_MUCH_LESS = 4
#: Weights that no kernel changes are copied to a file in pieces of this size.
_CHUNK_BYTES = 4 * 2**20


class ConstantsFile(Protocol):
    """What constants are written to: a file, or a part of one."""

    def seek(self, offset: int, /) -> int:
        """Go to a place, counted from where the constants begin."""

    def write(self, data: Any, /) -> int:
        """Write bytes there."""


class Prepared(Protocol):
    """A preparation with its weights, ready to run on the processor."""

    @property
    def workers(self) -> Pool | None:
        """The threads that it had; None if it had none."""

    def run_into(
        self, feeds: Sequence[object], outputs: Sequence[Array], cancel: CancelFlag | None = None
    ) -> None:
        """See `runtime.executable.Executable.run_into`."""


#: Makes what runs a plan, with the arrays behind its constants.
Prepare = Callable[[Plan, Sequence[Array]], Prepared]


class Constants:
    """Makes the constants of a model's main plan.

    Args:
        recipe: What is done.
        prepare: Makes what runs a preparation.
        budget: Counts what the session holds. The constants are counted at once.
        cancel: Ends the preparations when it is set.

    Attributes:
        recipe: What is done.
        strings: The model's own strings.
        places: Where each constant lies in a file of all.

    Raises:
        OutOfMemory: They need more memory than the session may have.
    """

    def __init__(
        self,
        recipe: Recipe,
        prepare: Prepare,
        budget: Budget,
        cancel: CancelFlag | None = None,
    ) -> None:
        self.recipe, self._prepare, self._budget, self._cancel = recipe, prepare, budget, cancel
        self._workers: Pool | None = None
        self._made = {b for p in recipe.preparations for b in p.outputs}
        self.strings = self._all_strings()
        self.places = self._all_places()
        budget.take(sum(size for *_, size in self.places), "constants", self._largest)

    def _all_strings(self) -> Strings:
        """Codes for all strings among the model's constants."""
        strings = Strings()
        read = [b for p in self.recipe.preparations for b in p.constants]
        for buffer in (*read, *self.recipe.constants):
            if buffer.dtype is dtypes.STRING and buffer not in self._made:
                strings.encode(_stored(buffer).array(), buffer.label)
        return strings

    def _all_places(self) -> list[ConstantPlace]:
        found: list[ConstantPlace] = []
        at = 0
        for buffer in self.recipe.constants:
            shape, size = tuple(int(d) for d in buffer.shape), size_bytes(buffer)
            found.append((buffer.dtype, shape, at, size))
            at += -(-size // _ALIGN) * _ALIGN
        return found

    def _placed(self) -> Iterator[tuple[Stored, ConstantPlace]]:
        return zip(self.recipe.constants, self.places, strict=True)

    def _largest(self) -> str:
        most = sorted(((size, b.label) for b, (*_, size) in self._placed()), reverse=True)[:3]
        return "The largest: " + ", ".join(f"{size} bytes ({name})" for size, name in most)

    def _largest_first(self) -> list[Preparation]:
        """What is done, in an order in which memory is given back for what follows.

        A file's pages are made of it, too: pages that no process had before may cost the system
        more than what is written to them.
        """

        def size(preparation: Preparation) -> int:
            return sum(map(size_bytes, (*preparation.constants, *preparation.outputs)))

        return sorted(self.recipe.preparations, key=size, reverse=True)

    def arrays(self) -> list[Array]:
        """All constants, in memory.

        Raises:
            RuntimeException: A kernel met data that it cannot work on.
            Fail: The model's file was changed, or the preparations were cancelled.
            OutOfMemory: There is not enough memory.
        """
        found = {
            buffer: aligned_array(shape, dtype.stored)
            for buffer, (dtype, shape, _, _) in self._placed()
        }
        with self._staging() as take:
            for preparation in self._largest_first():
                self._run(preparation, take, found.get)
        for buffer, array in found.items():
            if buffer not in self._made:
                self._fill(buffer, array)
        return [found[b] for b in self.recipe.constants]

    def write(self, file: ConstantsFile) -> None:
        """Write all constants to a file, each at its place. Raises as `arrays` does."""
        places = {b: at for b, (_, _, at, _) in self._placed()}
        end = max((at + size for *_, at, size in self.places), default=0)
        with self._staging() as take:
            for preparation in self._largest_first():
                self._write_made(preparation, take, places, file)
            for buffer, at in places.items():
                if buffer not in self._made:
                    file.seek(at)
                    self._copy(buffer, file, take)
        file.seek(end)
        file.write(b"\0" * _ALIGN)

    def _write_made(
        self, preparation: Preparation, take: Take, places: dict[Stored, int], file: ConstantsFile
    ) -> None:
        """Run one, and write what the main plan has of it."""
        made = self._run(preparation, take, lambda _: None)
        for buffer, array in zip(preparation.outputs, made, strict=True):
            if buffer in places:
                file.seek(places[buffer])
                file.write(_bytes(array))

    @contextmanager
    def _staging(self) -> Iterator[Take]:
        """Memory that one preparation after the other uses."""
        staging = _Staging(self._budget)
        try:
            yield staging.take
        finally:
            self._workers = None
            staging.give_back()

    def _run(
        self, preparation: Preparation, take: Take, place: Callable[[Stored], Array | None]
    ) -> list[Array]:
        """Run one; gives its outputs, at their place or in memory that is used again."""
        checkpoint()
        outputs = [place(b) for b in preparation.outputs]
        homeless = [b for b, a in zip(preparation.outputs, outputs, strict=True) if a is None]
        views = take([*preparation.constants, *homeless])
        for buffer, view in zip(preparation.constants, views, strict=False):
            self._fill(buffer, view)
        left = iter(views[len(preparation.constants) :])
        made = [next(left) if a is None else a for a in outputs]
        given = views[: len(preparation.constants)]
        prepared = self._prepare(preparation.plan, given)
        prepared.run_into([], made, self._cancel)
        self._workers = prepared.workers  # threads that nobody holds end: the next one has them
        return made

    def _fill(self, buffer: Stored, target: Array) -> None:
        """Write what the model has to an array."""
        constant = _stored(buffer)
        if buffer.dtype is dtypes.STRING:
            target[...] = self.strings.encode(constant.array(), buffer.label)
        elif not constant.read(0, _bytes(target)):
            target[...] = constant.array()

    def _copy(self, buffer: Stored, file: ConstantsFile, take: Take) -> None:
        """Write what the model has to a file, at its position."""
        size, start, constant = size_bytes(buffer), 0, _stored(buffer)
        (view,) = take([min(size, _CHUNK_BYTES)])
        while start < size:
            checkpoint()
            part = _bytes(view)[: size - start]
            if not constant.read(start, part):
                del view, part  # nothing may hold the memory that this gives back
                (view,) = take([buffer])
                self._fill(buffer, view)
                part = _bytes(view)
            file.write(part)
            start += len(part)


#: Arrays for buffers, or for so many bytes, until the next call: who keeps one beyond it keeps the
#: memory of all, which is counted no more.
Take = Callable[[list[Any]], list[Array]]


class _Staging:
    """Memory that grows to what is needed at once."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._memory = np.empty(0, np.uint8)

    def take(self, wanted: list[Stored | int]) -> list[Array]:
        """See `Take`."""
        sizes = [w if isinstance(w, int) else size_bytes(w) for w in wanted]
        needed = sum(-(-size // _ALIGN) * _ALIGN for size in sizes)
        if needed > self._memory.size or needed < self._memory.size // _MUCH_LESS:
            self.give_back()
            self._budget.take(needed, "preparing constants")
            try:
                self._memory = aligned_array((needed,), np.dtype(np.uint8))
            except BaseException:
                self._budget.give(needed)
                raise
        views: list[Array] = []
        at = 0
        for item, size in zip(wanted, sizes, strict=True):
            view: Array = self._memory[at : at + size]
            if not isinstance(item, int):
                view = view.view(item.dtype.stored).reshape(tuple(int(d) for d in item.shape))
            views.append(view)
            at += -(-size // _ALIGN) * _ALIGN
        return views

    def give_back(self) -> None:
        """Free the memory."""
        self._budget.give(self._memory.size)
        self._memory = np.empty(0, np.uint8)


def _bytes(array: Array) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _stored(buffer: Stored) -> Any:
    """The model's constant behind a buffer."""
    if buffer.constant is None:
        raise errors.NotImplemented(message(buffer.label, "A value has no contents before a run"))
    return buffer.constant
