"""Writes programs of kind `block`: what each thread of a GPU's thread block does.

Such a program is a kernel whose blocks are computed by a thread block each, with memory that its
threads share. Vectors are a thread's own. Barriers, and what subgroups do together, must be reached
by all threads alike. Operations call a subgroup a warp.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Effect, Literal, Operand, SsaValue
from sardonyx.kernel.language.thread_blocks import ThreadBlocks
from sardonyx.kernel.language.types import F32, I32, I64, PTR, Type
from sardonyx.kernel.language.words import by_words

#: Parameters of a kernel behind its slots: how many blocks there are, and the context.
TRAILING = ("blocks", "context")


class ThreadBuilder(Builder):
    """A `Builder` with what only threads of a GPU have; for programs of kind `block`.

    Args:
        name: Symbol name.
        parameters: Names and types of the slots.
        device: What its thread blocks can do.
    """

    def __init__(
        self, name: str, parameters: Sequence[tuple[str, Type]], device: ThreadBlocks
    ) -> None:
        self.device = device
        trailing = zip(TRAILING, (I64, PTR), strict=True)
        super().__init__(name, [*parameters, *trailing], kind="block")

    def thread(self) -> SsaValue:
        """The number of the thread in its subgroup."""
        return self.let(I64, "thread", [])

    def warp_of_block(self) -> SsaValue:
        """The number of the subgroup in its thread block."""
        return self.let(I64, "warp_of_block", [])

    def shared_by_block(self, size_bytes: int) -> SsaValue:
        """Memory that the threads of a thread block share, aligned to 128 bytes."""
        return self.let(PTR, "shared_by_block", [], size_bytes=size_bytes)

    def barrier(self) -> None:
        """All threads of the thread block get here before any goes on."""
        self.append(Effect("barrier", ()))

    def copy_async(self, target: Operand, source: Operand, inside: Operand, size: int) -> None:
        """Begin to copy 4, 8 or 16 bytes to shared memory; zeros where not `inside`.

        The thread copies them at once where the device cannot do that beside other work.
        """
        if self.device.async_copy:
            self.append(Effect("copy_async", (target, source, inside), (("size_bytes", size),)))
            return
        kind = I32.with_lanes(size // I32.size_bytes)
        held = self.variable(Literal(kind, 0), name="copied")
        with self.if_(inside):
            held.set(self.load(kind, source, align_bytes=size))
        self.store(held.get(), target, align_bytes=size)

    def commit_copies(self) -> None:
        """The copies begun since the last time are a group."""
        if self.device.async_copy:
            self.append(Effect("commit_copies", ()))

    def wait_copies(self, pending: int) -> None:
        """Wait until at most so many groups of this thread's copies are under way."""
        if self.device.async_copy:
            self.append(Effect("wait_copies", (), (("pending", pending),)))

    def load_matrix(self, pointer: Operand, *, transposed: bool) -> SsaValue:
        """Four 8 by 8 matrices of 16-bit elements, spread over the subgroup.

        Each thread names the address of one row of 16 bytes: thread `8 m + r` row `r` of matrix
        `m`. It gets elements `2 (t % 4)` and the next of row `t / 4` of each matrix, or of column
        `t / 4` if `transposed`.
        """
        return self.let(I32.with_lanes(4), "load_matrix", [pointer], transposed=transposed)

    def multiply_matrices(
        self, kind: str, a: Sequence[Operand], b: Sequence[Operand], c: Operand
    ) -> SsaValue:
        """`a b + c`, 16 by 8 elements in f32, spread over a subgroup of 32 threads.

        Of the factors thread `t` has words of 32 bits: lines `t / 4` and `t / 4 + 8`, words
        `t % 4` and `t % 4 + 4` of each. Of the sums it has columns `2 (t % 4)` and the next of
        these lines. (PTX ISA, matrix fragments of mma.m16n8k16 and mma.m16n8k8.)

        kind: `f16` or `bf16`, 16 by 16 times 16 by 8; or `tf32`, 16 by 8 times 8 by 8.
        """
        return self.let(F32.with_lanes(4), "multiply_matrices", [*a, *b, c], kind=kind)

    def power_of_two(self, x: Operand) -> SsaValue:
        """`2^x` as the hardware has it, with an error of up to 2 ulp."""
        return self.let(F32, "power_of_two", [x])

    def across(self, x: Operand, distance: int) -> Operand:
        """The value of the thread whose number differs in one bit."""

        def move(word: Operand) -> Operand:
            return self.let(I32, "shuffle_across", [word], number=distance)

        return by_words(self, x, move)

    def to_tf32(self, x: Operand) -> SsaValue:
        """A float with 10 bits of mantissa, as its bits; ties away from zero."""
        return self.let(I32, "to_tf32", [x])
