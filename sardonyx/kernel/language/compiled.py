"""What building a kernel gives: the program, and what the plan must know to call it."""

from __future__ import annotations

from dataclasses import field

from sardonyx.base import sizes
from sardonyx.base.records import dataclass
from sardonyx.base.sizes import Atom, Dim
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Operand, Program
from sardonyx.kernel.language.types import I64, PTR, Type
from sardonyx.plan.plan import HostSignature
from sardonyx.tensor.tensor import Buffer, Tensor


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies: its pointer, and how many elements a step along each axis is."""

    pointer: Operand
    strides: tuple[Dim, ...]
    _offsets: dict[tuple[Dim, ...], Dim] = field(default_factory=dict, compare=False, repr=False)

    def offset(self, indices: tuple[Dim, ...]) -> Dim:
        """Elements from the pointer to the element at `indices`."""
        found = self._offsets.get(indices)
        if found is None:
            found = self._offsets[indices] = sizes.inner_product(indices, self.strides)
        return found


#: Names and sizes, see `Kernel`.
PerBlock = tuple[tuple[str, Dim], ...]


@dataclass(eq=False, slots=True)
class Kernel:
    """A kernel program with its demands.

    Attributes:
        program: The kernel.
        functions: Other functions of the same module that it calls.
        arguments: What each parameter is, in slot order: a buffer (its address) or a symbolic
            integer (its value).
        blocks: How many blocks the parallel axis has.
        cost_ns: Estimated time of all blocks together on one thread.
        scratch_bytes: Memory that each thread needs.
        host: What is called in place of the program, which is empty then.
        per_block: What one block does at most, by name, such as rows and columns: for people. None
            of it is known of a kernel that another process has written.
    """

    program: Program
    arguments: tuple[Buffer | Dim, ...]
    blocks: Dim
    cost_ns: Dim
    scratch_bytes: Dim = 0
    functions: tuple[Program, ...] = field(default=())
    host: HostSignature | None = None
    per_block: PerBlock = ()


class KernelParameters:
    """Collects a kernel's parameters before its builder is made.

    Pointers come first, then the symbols that sizes and strides are made of, so that equal kernels
    over different buffers have equal programs.
    """

    def __init__(self, buffers: list[Buffer], dims: list[Dim]) -> None:
        self.buffers = list(dict.fromkeys(buffers))
        symbols: dict[Atom, None] = {}
        for dim in dims:
            for atom in sorted(symbols_of(dim), key=lambda a: a.order):
                symbols[atom] = None
        self.symbols = list(symbols)

    def types(self) -> list[tuple[str, Type]]:
        """Names and types for the builder."""
        pointers = [(f"p{k}", PTR) for k in range(len(self.buffers))]
        return pointers + [(f"s{k}", I64) for k in range(len(self.symbols))]

    @property
    def arguments(self) -> tuple[Buffer | Dim, ...]:
        """What the plan passes, in slot order."""
        return (*self.buffers, *map(sizes.of_atom, self.symbols))

    def atoms(self, builder: Builder) -> dict[Atom, Operand]:
        """Values of the symbols inside the kernel."""
        return {a: builder.parameter(f"s{k}") for k, a in enumerate(self.symbols)}

    def places(
        self, builder: Builder, strides: dict[Tensor, tuple[Dim, ...]]
    ) -> dict[Tensor, Place]:
        """Where the buffers lie."""
        return {
            t: Place(builder.parameter(f"p{k}"), strides[t]) for k, t in enumerate(self.buffers)
        }


def symbols_of(dim: Dim) -> set[Atom]:
    """The symbols in `dim`, also those in the extents of its index variables."""
    found: set[Atom] = set()
    for atom in sizes.atoms_of(dim):
        if atom.kind == "symbol":
            found.add(atom)
        elif atom.kind in ("index", "opaque"):
            for argument in atom.arguments:
                found |= symbols_of(argument)
    return found
