"""What building a kernel gives, as bytes: so that another process need not build it again.

The bytes have no statements: those are in the machine code that goes with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import field
from typing import Any, Protocol

from sardonyx.base.errors import EngineError, message
from sardonyx.base.records import dataclass
from sardonyx.kernel.language.compiled import Kernel
from sardonyx.kernel.language.program import Block, Program
from sardonyx.kernel.matmul.factors import Packing
from sardonyx.selection.codec import CodeLocation, ExpressionReader, ExpressionWriter, code_from
from sardonyx.tensor.tensor import Buffer


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A kernel over placeholders, and what is packed before it runs."""

    kernel: Kernel
    packings: list[Packing] = field(default_factory=list)


class Keeper(Protocol):
    """Keeps kernels that were built, by the structure that they serve."""

    def find(self, key: tuple[object, ...], name: Callable[[str], str]) -> KernelRecord | None:
        """The kernel of a structure, whose machine code is there, too.

        Args:
            key: The structure.
            name: Gives the kernel a name, from how such names begin.
        """

    def keep(self, key: tuple[object, ...], record: KernelRecord) -> None:
        """Take a kernel that was built."""


def to_bytes(key: str, record: KernelRecord, code: CodeLocation) -> bytes:
    """What `from_bytes` reads.

    Args:
        key: Of the structure.
        record: The kernel.
        code: Where its machine code is.

    Raises:
        EngineError: It contains what has no meaning in another process.
    """
    kernel, w = record.kernel, ExpressionWriter()
    for packing in record.packings:
        at = packing.packed
        w.name(at, {"packed": [w.dims(at.shape), at.dtype.name]})
    if kernel.host is not None or kernel.program.kind != "kernel":
        raise EngineError(message("kernel", f"{kernel.program.name} is not machine code alone"))
    sizes_ = [w.dim(d) for d in (kernel.blocks, kernel.cost_ns, kernel.scratch_bytes)]
    arguments = [w.buffer(a) if isinstance(a, Buffer) else w.dim(a) for a in kernel.arguments]
    is_buffer = [isinstance(a, Buffer) for a in kernel.arguments]
    packings = [[w.buffer(p.packed), w.contents(p.contents)] for p in record.packings]
    body = [
        key, w.table, code.stem, code.place, code.others, sizes_, is_buffer, arguments, packings
    ]  # fmt: skip
    return json.dumps(body, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class EncodedKernel:
    """What bytes say, before any of it is made.

    Attributes:
        code: Where its machine code is.
    """

    code: CodeLocation
    _rest: list[Any]

    def record(self, name: str) -> KernelRecord:
        """The kernel, under a name."""
        table, (blocks, cost, scratch), is_buffer, arguments, packings = self._rest
        r = ExpressionReader(table)
        program = Program(name, "kernel", (), None, Block())
        made = tuple(
            r.buffer(a) if one else r.dim(a) for one, a in zip(is_buffer, arguments, strict=True)
        )
        kernel = Kernel(program, made, r.dim(blocks), r.dim(cost), r.dim(scratch))
        packs = [Packing(r.buffer(at), r.contents(contents)) for at, contents in packings]
        return KernelRecord(kernel, packs)


def from_bytes(key: str, data: bytes) -> EncodedKernel:
    """Read what `to_bytes` wrote for the same structure.

    Raises:
        ValueError: The bytes are of another structure, or damaged.
    """
    own, table, stem, place, others, *rest = json.loads(data)
    if own != key:
        raise ValueError("they are of another structure")
    return EncodedKernel(code_from(stem, place, others), [table, *rest])
