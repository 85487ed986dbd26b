"""What machine code is generated for: instruction set, vector width, registers.

Sizes of caches are no part of it: machines with equal instructions share kernels.

Nothing here imports llvmlite, so that a session whose code is in the cache never loads it.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache

from sardonyx.base import knobs
from sardonyx.base.errors import EngineError, InvalidArgument, message
from sardonyx.base.records import dataclass
from sardonyx.kernel.language.thread_blocks import MatrixShape, ThreadBlocks
from sardonyx.kernel.loops.block_sizes import (
    FEW_CORES,
    FEW_REGISTERS,
    WITH_MATRICES,
    BlockSizes,
    Tiling,
)
from sardonyx.targets.machine import AMX, Caches, Machine, read_machine


@dataclass(frozen=True, slots=True)
class Target:
    """A machine to generate code for. Equal targets get equal code.

    Attributes:
        name: LLVM's level and ours, such as `x86-64-v4-avx512`.
        arch: `x86_64` or `aarch64`.
        isa: `avx512`, `avx2`, `sse` or `neon`.
        triple: LLVM's triple; always one whose objects are ELF.
        cpu: LLVM's processor name, a level and never `native`.
        features: LLVM's feature string: all that is used beyond `cpu`.
        vector_bits: Width of the widest vector register.
        registers: Number of vector registers.
        has_fma: Fused multiply-add is one instruction.
        has_f16: Conversions between float16 and float32 are instructions.
        has_f16_math: Arithmetic on float16 vectors is native.
        has_bf16: Dot products of bfloat16 pairs are native (avx512_bf16, or AArch64's bf16).
        has_vnni: Dot products of four int8 are native at full vector width (VNNI, or dotprod).
        has_vbmi: Byte permutations over whole 512-bit vectors are native.
        has_i8mm: AArch64's int8 matrix products are native.
        block_sizes: How much a block of a kernel does.
    """

    name: str
    arch: str
    isa: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    registers: int
    has_fma: bool = False
    has_f16: bool = False
    has_f16_math: bool = False
    has_bf16: bool = False
    has_vnni: bool = False
    has_vbmi: bool = False
    has_i8mm: bool = False
    block_sizes: BlockSizes = FEW_CORES

    def lanes(self, bits: int) -> int:
        """How many elements of `bits` bits a vector register holds."""
        return self.vector_bits // bits

    @property
    def has_dots(self) -> bool:
        """Whether products of unsigned and signed bytes are added up four at a time."""
        return self.has_vnni and self.arch == "x86_64"

    @property
    def has_halves(self) -> bool:
        """Whether products of pairs of bfloat16 are added up in float32."""
        return self.has_bf16 and self.isa == "avx512"

    # -- devices with thread blocks -------------------------------------------------------------

    @property
    def has_thread_blocks(self) -> bool:
        """Whether kernels are computed by blocks of threads that share memory on the chip."""
        return self.block_sizes.has_thread_blocks

    @property
    def thread_blocks(self) -> ThreadBlocks:
        """What they can do.

        Raises:
            EngineError: There are none.
        """
        return self._tiling.thread_blocks

    @property
    def _tiling(self) -> Tiling:
        if self.block_sizes.tiling is None:
            raise EngineError(message(self.name, "The target has no thread blocks"))
        return self.block_sizes.tiling

    @property
    def multiprocessors(self) -> int:
        """Parts of the device that thread blocks run on: all should have work. Raises as above."""
        return self._tiling.processors

    @property
    def subgroup_size(self) -> int:
        """Threads that exchange words without memory; 1 without thread blocks."""
        return self.thread_blocks.subgroup_size if self.has_thread_blocks else 1

    @property
    def subgroups(self) -> int:
        """Subgroups of a thread block; 1 without thread blocks."""
        return self.thread_blocks.subgroups if self.has_thread_blocks else 1

    @property
    def shared_bytes(self) -> int:
        """Memory on the chip that every thread block can have; 0 without thread blocks."""
        return self.thread_blocks.shared_bytes if self.has_thread_blocks else 0

    @property
    def matrix_shapes(self) -> tuple[MatrixShape, ...]:
        """Products of small matrices that a subgroup computes; none without thread blocks."""
        return self.thread_blocks.matrix_shapes if self.has_thread_blocks else ()

    @property
    def async_copy(self) -> bool:
        """Whether copies to shared memory go on while threads do something else."""
        return self.has_thread_blocks and self.thread_blocks.async_copy

    @property
    def pointer_bits(self) -> int:
        """Bits of an address in kernels."""
        return self.thread_blocks.pointer_bits if self.has_thread_blocks else 64

    @property
    def key(self) -> str:
        """All fields as text, for cache keys.

        What thread blocks can do is not among it: `features` must have a word for each capability
        that devices of one `cpu` have or lack, so that equal keys are equal capabilities.
        """
        return ";".join(str(getattr(self, field.name)) for field in dataclasses.fields(self))

    def __str__(self) -> str:
        return f"{self.name} ({self.vector_bits}-bit vectors, {self.registers} registers)"


_V2 = frozenset("cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3".split())
_V3 = _V2 | frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe".split())
_V4 = _V3 | frozenset("avx512f avx512bw avx512cd avx512dq avx512vl".split())

# /proc/cpuinfo's word -> LLVM's feature, for what generated code can use beyond its level.
_EXTRAS_512 = {
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "avx512vbmi": "avx512vbmi",
    "avx_vnni": "avxvnni",
    "amx_tile": "amx-tile",
    "amx_bf16": "amx-bf16",
    "amx_int8": "amx-int8",
}
_EXTRAS_256 = {"avx_vnni": "avxvnni"}
_EXTRAS_NEON = {"asimdhp": "fullfp16", "asimddp": "dotprod", "bf16": "bf16", "i8mm": "i8mm"}


def _features(flags: frozenset[str], extras: dict[str, str]) -> list[str]:
    return [f"+{llvm}" for word, llvm in extras.items() if word in flags]


def _avx512(flags: frozenset[str]) -> Target:
    # LLVM would split 512-bit vectors in two at this level unless told otherwise.
    features = ["-prefer-256-bit", *_features(flags, _EXTRAS_512)]
    if "avx512vbmi" in flags:
        # Since these processors a division of 64 bits takes hardly longer than one of 32, which
        # LLVM would try first, with two more blocks for each.
        features.append("-idivq-to-divl")
    return Target(
        name="x86-64-v4-avx512",
        arch="x86_64",
        isa="avx512",
        triple="x86_64-unknown-linux-gnu",
        cpu="x86-64-v4",
        features=",".join(features),
        vector_bits=512,
        registers=32,
        has_fma=True,
        has_f16=True,
        has_f16_math="avx512_fp16" in flags,
        has_bf16="avx512_bf16" in flags,
        has_vnni="avx512_vnni" in flags,
        has_vbmi="avx512vbmi" in flags,
        block_sizes=WITH_MATRICES if flags >= AMX else FEW_CORES,
    )


def _avx2(flags: frozenset[str]) -> Target:
    return Target(
        name="x86-64-v3-avx2",
        arch="x86_64",
        isa="avx2",
        triple="x86_64-unknown-linux-gnu",
        cpu="x86-64-v3",
        features=",".join(_features(flags, _EXTRAS_256)),
        vector_bits=256,
        registers=16,
        has_fma=True,
        has_f16=True,
        has_vnni="avx_vnni" in flags,
        block_sizes=FEW_REGISTERS,
    )


def _sse(flags: frozenset[str]) -> Target:
    level = "x86-64-v2" if flags >= _V2 else "x86-64"
    return Target(
        name=f"{level}-sse",
        arch="x86_64",
        isa="sse",
        triple="x86_64-unknown-linux-gnu",
        cpu=level,
        features="",
        vector_bits=128,
        registers=16,
        block_sizes=FEW_REGISTERS,
    )


def _neon(flags: frozenset[str]) -> Target:
    # x18 belongs to the system on macOS and Windows.
    features = ["+neon", "+reserve-x18", *_features(flags, _EXTRAS_NEON)]
    return Target(
        name="aarch64-neon",
        arch="aarch64",
        isa="neon",
        triple="aarch64-unknown-linux-gnu",
        cpu="generic",
        features=",".join(features),
        vector_bits=128,
        registers=32,
        has_fma=True,
        has_f16=True,
        has_f16_math="asimdhp" in flags,
        has_bf16="bf16" in flags,
        has_vnni="asimddp" in flags,
        has_i8mm="i8mm" in flags,
    )


_MAKERS = {"avx512": _avx512, "avx2": _avx2, "sse": _sse, "neon": _neon}
_NEEDS = {"avx512": _V4, "avx2": _V3, "sse": frozenset[str](), "neon": frozenset[str]()}


def target_for(isa: str, machine: Machine) -> Target:
    """The target of one instruction set, with those extras that the machine has.

    Asking an x86 machine for `neon`, or the other way round, gives code that it cannot run; it is
    meant for generating ahead of time, and assumes none of the extras.
    """
    foreign = (isa == "neon") != (machine.arch == "aarch64")
    return _MAKERS[isa](frozenset[str]() if foreign else machine.flags)


_SERVER = _V4 | AMX | {"avx512_vnni", "avx512_bf16", "avx512_fp16", "avx512vbmi", "avx_vnni"}
#: Name -> instruction set, architecture and flags of a processor that no machine decides.
_PROCESSORS = {
    "amx": ("avx512", "x86_64", _SERVER),
    "avx512": ("avx512", "x86_64", _V4),
    "avx2": ("avx2", "x86_64", _V3),
    "sse": ("sse", "x86_64", _V2),
    "neon": ("neon", "aarch64", frozenset({"asimdhp", "asimddp"})),
}


def named_targets() -> dict[str, Target]:
    """Each instruction set, with and without what its newest processors add, by name.

    They are the same on every machine.
    """
    return {
        name: target_for(isa, Machine(arch, flags, Caches()))
        for name, (isa, arch, flags) in _PROCESSORS.items()
    }


def best_isa(machine: Machine) -> str:
    """The widest instruction set that the machine has."""
    if machine.arch == "aarch64":
        return "neon"
    return next(isa for isa in ("avx512", "avx2", "sse") if machine.flags >= _NEEDS[isa])


def check_isa(isa: str, machine: Machine) -> None:
    """Refuse an instruction set of this machine's family that the machine lacks.

    Raises:
        InvalidArgument: Naming what is missing.
    """
    missing = _NEEDS[isa] - machine.flags
    if machine.arch == "aarch64" and isa != "neon":
        missing = frozenset({"x86-64"})
    if missing:
        raise InvalidArgument(
            message(
                "SARDONYX_CPU",
                f"This machine cannot run {isa} code: it lacks {', '.join(sorted(missing))}",
                expected=f"{best_isa(machine)} or less",
                got=isa,
                do="Unset the variable or lower it",
            )
        )


@lru_cache
def this_machine() -> Machine:
    """The machine that this process runs on."""
    return read_machine()


@lru_cache
def check_runs(target_name: str) -> None:
    """Refuse code for another processor: executing it would end the process.

    Raises:
        InvalidArgument: This machine cannot run code of the target of that name.
    """
    isa = target_name.rpartition("-")[2]
    machine = this_machine()
    fits = isa in _NEEDS and (isa == "neon") == (machine.arch == "aarch64")
    if not fits or _NEEDS[isa] - machine.flags:
        best = target_for(best_isa(machine), machine).name
        raise InvalidArgument(
            message(
                "code",
                "The compiled code is for another processor",
                expected=f"{best} or less",
                got=target_name,
                do="Compile on this machine, or for it",
            )
        )


def check_features(features: str) -> None:
    """Refuse code that uses instructions which this machine lacks; see `Target.features`.

    Raises:
        InvalidArgument: Naming them.
    """
    words = {llvm: word for word, llvm in (_EXTRAS_512 | _EXTRAS_256 | _EXTRAS_NEON).items()}
    needed = {name[1:] for name in features.split(",") if name.startswith("+")}
    missing = {
        x for x in needed - {"neon", "reserve-x18"} if words.get(x) not in this_machine().flags
    }
    if missing and {words.get(x) for x in missing} <= AMX:
        raise InvalidArgument(
            message(
                "code",
                "The compiled code multiplies in registers for matrices (AMX), which the processor"
                " does not have, or the system does not give this process",
                do="Compile where they are not, or have no small stack for signals",
            )
        )
    if missing:
        raise InvalidArgument(
            message(
                "code", "The compiled code is for a processor with more instructions",
                expected="none of " + ", ".join(sorted(missing)), got=features,
                do="Compile on this machine, or for a lesser instruction set (SARDONYX_CPU)",
            )
        )  # fmt: skip


@lru_cache
def _checked_target(isa: str | None) -> Target:
    machine = this_machine()
    if isa is None:
        return target_for(best_isa(machine), machine)
    check_isa(isa, machine)
    return target_for(isa, machine)


def host_target() -> Target:
    """The target of this machine, or the lesser one that SARDONYX_CPU names.

    Raises:
        InvalidArgument: SARDONYX_CPU names an instruction set that this machine lacks.
    """
    return _checked_target(knobs.get("SARDONYX_CPU"))
