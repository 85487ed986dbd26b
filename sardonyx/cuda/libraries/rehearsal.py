"""A kernel on memory of its own, to find out how long it takes while runs go on.

A library that is not always faster than the kernel of a command measures both: itself, and this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base.records import dataclass
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.run import launching
from sardonyx.kernel.language.context import FIELDS, SIZE_BYTES, TICKETS
from sardonyx.llvm.ptx import THREADS
from sardonyx.native.layout import LAUNCHED, WORD
from sardonyx.plan.plan import Command, PointerArgument
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.storage import Array

if TYPE_CHECKING:
    from sardonyx.cuda.driver.module import Module
    from sardonyx.cuda.libraries.measuring import Loan
    from sardonyx.cuda.run.frame import CudaFrame
    from sardonyx.runtime.plan_tables import PlanTables

#: What a kernel's threads work in is not lent if it is more.
_MOST_SCRATCH = 256 << 20
_FAULT_BYTES = 64
#: What the memory of operands is full of: small numbers of any type.
_BYTE = 0x3C


@dataclass(eq=False, slots=True)
class Rehearsal:
    """The launch of a command's kernel, without the memory of a run.

    Attributes:
        module: Has the kernel.
        record: The driver's record of the launch, behind four words of our own.
        words: Number of blocks, then the kernel's arguments.
        sizes: Bytes behind each argument that is an address, by its place among the arguments.
        scratch_bytes: What a warp works in.
        warps: How many there are at once.
    """

    module: Module
    record: Array
    words: Array
    sizes: Mapping[int, int]
    scratch_bytes: int
    warps: int

    @staticmethod
    def of(frame: CudaFrame, image: PlanTables, number: int, module: Module) -> Rehearsal | None:
        """The kernel of a command with the sizes of a run; None if it cannot be done apart."""
        command, slots = image.plan.commands[number], frame.table("slots")
        assert isinstance(command, Command)  # noqa: S101 - steps have no kernels
        arguments = enumerate(command.kernel_arguments)
        buffers = {k: a.buffer for k, a in arguments if isinstance(a, PointerArgument)}
        if any(image.plan.buffers[b].kind == "grown" for b in buffers.values()):
            return None
        sizes = {k: int(slots[image.buffer_slots[b]]) for k, b in buffers.items()}
        start = image.argument_places[number]
        words = frame.table("arguments")[start - 1 : start + len(command.kernel_arguments)].copy()
        record = frame.launches.record_of(number)
        if record is None:
            return None
        warps = int(record[LAUNCHED["grid_xy"]] & 0xFFFFFFFF) * THREADS[1]
        scratch = frame.get("scratch_bytes") if command.scratch_bytes != 0 else 0
        if scratch * warps > _MOST_SCRATCH:
            return None
        return Rehearsal(module, record, words, sizes, scratch, warps)

    def prepare(self, loan: Loan, stream: Any) -> _Prepared:
        """The same on lent memory."""
        words = self.words.copy()
        for place, size_bytes in self.sizes.items():
            words[1 + place] = loan.take(size_bytes, stream, _BYTE)
        context = np.zeros(SIZE_BYTES // WORD, np.int64)
        lent = {
            "fault": _FAULT_BYTES, "cancel": WORD, "tickets": 4 * TICKETS,
            "scratch": self.scratch_bytes * self.warps,
        }  # fmt: skip
        for name, size_bytes in lent.items():
            context[FIELDS[name] // WORD] = loan.take(size_bytes, stream)
        context[FIELDS["scratch_bytes"] // WORD] = self.scratch_bytes
        address = loan.take(SIZE_BYTES, stream)
        call("cuMemcpyAsync", address, address_of(context), SIZE_BYTES, stream)
        call("cuStreamSynchronize", stream)
        return _Prepared(self, words, address, stream)


class _Prepared:
    """A launch that can be repeated."""

    def __init__(self, rehearsal: Rehearsal, words: Array, context: int, stream: Any) -> None:
        self._module, self._words = rehearsal.module, words
        self._tail = np.array([context, 0], np.int64)
        first, tail = address_of(words), address_of(self._tail)
        places = [first + WORD * k for k in range(1, len(words))]
        self._parameters = np.array([*places, first, tail, tail + WORD], np.int64)
        self._record = rehearsal.record.copy()
        self._record[LAUNCHED["stream"]] = int(stream)
        self._function = int(self._record[LAUNCHED["function"]])

    def launch(self) -> None:
        """Put the kernel in the stream."""
        place = address_of(self._record) + WORD * LAUNCHED["grid_xy"]
        launching.launch_kernel(place, self._function, address_of(self._parameters))
