"""Reading what this machine's processor has, from the operating system, without llvmlite."""

from __future__ import annotations

import ctypes
import platform
import re
import sys
from pathlib import Path

from sardonyx.base.files import text_of
from sardonyx.base.forks import compiling
from sardonyx.base.log import get_logger
from sardonyx.base.records import dataclass

_logger = get_logger("machine")
#: The processor's features with which it has registers for matrices.
AMX = frozenset(("amx_tile", "amx_bf16", "amx_int8"))
#: Linux: the system call and its request for state that a process has only if it asks; x86-64.
_ARCH_PRCTL, _REQUEST_STATE, _STATE_OF_TILES = 158, 0x1023, 18


@dataclass(frozen=True, slots=True)
class Caches:
    """Sizes of the data caches that one core sees."""

    l1d_bytes: int = 32 * 2**10
    l2_bytes: int = 512 * 2**10
    l3_bytes: int = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Machine:
    """A processor: `x86_64` or `aarch64`, its features in /proc/cpuinfo's words, its caches."""

    arch: str
    flags: frozenset[str]
    caches: Caches


def read_machine() -> Machine:
    """Describe this machine; what cannot be found out counts as absent."""
    word = platform.machine().lower()
    arch = "aarch64" if word in ("aarch64", "arm64") else "x86_64"
    if sys.platform == "darwin":
        return Machine(arch, _darwin_flags(arch), _darwin_caches())
    if sys.platform == "win32":
        return Machine(arch, _windows_flags(arch), Caches())
    flags = flags_of_cpuinfo(text_of("/proc/cpuinfo"))
    if flags >= AMX and not _may_use_matrices():
        _logger.info("the system does not give this process the registers for matrices (AMX)")
        flags -= AMX
    return Machine(arch, flags, caches_of_sysfs(Path("/sys/devices/system/cpu/cpu0/cache")))


def _may_use_matrices() -> bool:
    """Ask Linux for the registers that hold matrices: for all threads, until the process ends.

    It refuses if a thread has a stack for signals on which their state would have no room. See
    https://docs.kernel.org/arch/x86/xstate.html.
    """
    try:
        system = ctypes.CDLL(None, use_errno=True)
        return bool(system.syscall(_ARCH_PRCTL, _REQUEST_STATE, _STATE_OF_TILES) == 0)
    except (OSError, AttributeError):
        return False


def flags_of_cpuinfo(text: str) -> frozenset[str]:
    """The features that all processors in a /proc/cpuinfo have in common."""
    lines = re.findall(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    sets = [frozenset(line.split()) for line in set(lines)]
    return frozenset.intersection(*sets) if sets else frozenset()


def caches_of_sysfs(folder: Path) -> Caches:
    """Cache sizes from the `cache` folder of one processor; defaults where a level is missing."""
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        size = re.fullmatch(r"(\d+)([KMG]?)", text_of(index / "size").strip())
        level = text_of(index / "level").strip()
        if size and level.isdigit() and text_of(index / "type").strip() != "Instruction":
            unit = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[size[2]]
            sizes[int(level)] = int(size[1]) * unit
    return _caches(sizes)


def _caches(sizes: dict[int, int]) -> Caches:
    default = Caches()
    l2_bytes = sizes.get(2) or default.l2_bytes
    return Caches(
        l1d_bytes=sizes.get(1) or default.l1d_bytes,
        l2_bytes=l2_bytes,
        l3_bytes=sizes.get(3) or (max(default.l3_bytes, l2_bytes) if not sizes else l2_bytes),
    )


def _sysctl(*names: str) -> dict[str, str]:
    """Values by name; names that the system does not know are absent."""
    with compiling:
        import subprocess  # macOS only

    try:
        done = subprocess.run(
            ["/usr/sbin/sysctl", *names], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = (line.partition(": ") for line in done.stdout.splitlines())
    return {name: value.strip() for name, _, value in pairs}


_DARWIN_ARM = {
    "hw.optional.arm.FEAT_FP16": "asimdhp",
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_BF16": "bf16",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
}
_DARWIN_X86 = {"sse4.1": "sse4_1", "sse4.2": "sse4_2", "avx1.0": "avx", "lzcnt": "abm"}
_DARWIN_X86 |= {"lahf": "lahf_lm"}


def _darwin_flags(arch: str) -> frozenset[str]:
    if arch == "aarch64":
        values = _sysctl(*_DARWIN_ARM)
        return frozenset(_DARWIN_ARM[name] for name, value in values.items() if value == "1")
    found = _sysctl("machdep.cpu.features", "machdep.cpu.leaf7_features", "machdep.cpu.extfeatures")
    words = " ".join(found.values()).lower().split()
    return frozenset(_DARWIN_X86.get(word, word) for word in words)


def _darwin_caches() -> Caches:
    names = {
        "hw.perflevel0.l1dcachesize": 1,
        "hw.perflevel0.l2cachesize": 2,
        "hw.l1dcachesize": 1,
        "hw.l2cachesize": 2,
        "hw.l3cachesize": 3,
    }
    sizes: dict[int, int] = {}
    for name, value in _sysctl(*names).items():
        if value.isdigit():
            sizes.setdefault(names[name], int(value))
    return _caches(sizes)


def _windows_flags(arch: str) -> frozenset[str]:
    """What IsProcessorFeaturePresent can tell; it has no word for AVX-512's parts."""
    kernel32 = getattr(ctypes, "windll").kernel32  # noqa: B009 - absent from other systems' stubs
    level2 = frozenset("cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3".split())
    # Every processor with AVX2 that Windows supports has the rest of x86-64-v3.
    level3 = level2 | frozenset("avx avx2 bmi1 bmi2 f16c fma abm movbe".split())
    if arch == "aarch64":
        return frozenset({"asimddp"}) if kernel32.IsProcessorFeaturePresent(43) else frozenset()
    if kernel32.IsProcessorFeaturePresent(40):
        return level3
    return level2 if kernel32.IsProcessorFeaturePresent(38) else frozenset()
