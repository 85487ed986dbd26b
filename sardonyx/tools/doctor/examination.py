"""One look at everything: each part may fail without the others."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from sardonyx.api.version import __version__
from sardonyx.base import knobs
from sardonyx.base.errors import InvalidArgument, SardonyxError
from sardonyx.base.files import text_of
from sardonyx.base.processors import allowed_processors, cgroup_quota, usable_processors
from sardonyx.cpu.threads import thread_count
from sardonyx.runtime.budget import group_limits, machine_memory_bytes
from sardonyx.store.cache import Cache, default_cache
from sardonyx.store.kernel_archive import archive_for
from sardonyx.targets.machine import AMX, flags_of_cpuinfo, read_machine
from sardonyx.targets.target import Target, best_isa, host_target, target_for
from sardonyx.tools.doctor.findings import Findings
from sardonyx.tools.doctor.gpu import look_at_gpu
from sardonyx.tools.doctor.self_test import test_engine

#: What generated code can use of an x86 or ARM processor.
_FEATURES = (
    "sse4_2 avx avx2 fma f16c avx512f avx512bw avx512vl avx512_vnni avx512_bf16 avx512_fp16 "
    "avx512vbmi avx_vnni amx_int8 amx_bf16 asimd asimdhp asimddp bf16 i8mm sve"
).split()
_PACKAGES = (
    "numpy", "llvmlite", "ml_dtypes", "onnx", "onnxruntime", "cuda-bindings", "nvmath-python",
    "nvidia-cudnn-frontend", "pillow",
)  # fmt: skip
_NEEDED = ("numpy", "llvmlite", "ml_dtypes")
_VARIABLES = (
    "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONDONTWRITEBYTECODE", "XDG_CACHE_HOME",
)  # fmt: skip
#: Less free space than this is worth a remark.
_LITTLE_SPACE_BYTES = 1 << 30


def examine(*, self_test: bool = True) -> Findings:
    """Look at versions, processor, memory, GPU, cache and switches; compile and run a tiny model.

    Args:
        self_test: Whether to do the last of these, in a process of its own; it takes seconds.
    """
    found = Findings()
    parts: list[tuple[str, Callable[[Findings], None]]] = [
        ("versions", _versions),
        ("processor", _processor),
        ("memory", _memory),
        ("GPU", look_at_gpu),
        ("cache", _cache),
        ("switches", _switches),
    ]
    if self_test:
        parts.append(("self test", test_engine))
    for name, look in parts:
        try:
            look(found)
        except Exception as error:  # noqa: BLE001 - what is broken may break in any way
            found.problem(f"{name}: {type(error).__name__}: {error}")
    return found


def _versions(found: Findings) -> None:
    section = "versions"
    found.add(section, "sardonyx", __version__)
    found.add(
        section, "Python", f"{platform.python_version()} ({platform.python_implementation()})"
    )
    found.add(section, "system", f"{platform.system()} {platform.release()} {platform.machine()}")
    libc = " ".join(platform.libc_ver())
    if libc.strip():
        found.add(section, "C library", libc)
    for name in _PACKAGES:
        try:
            found.add(section, name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            found.add(section, name, "not installed")
            if name in _NEEDED:
                found.problem(f"the package {name} is missing: pip install {name}")
    try:
        from llvmlite import binding

        found.add(section, "LLVM", ".".join(map(str, binding.llvm_version_info)))
    except Exception as error:  # noqa: BLE001 - its library may fail to load in any way
        found.problem(f"llvmlite cannot be imported: {type(error).__name__}: {error}")


def _processor(found: Findings) -> None:
    section = "processor"
    cpuinfo = text_of("/proc/cpuinfo")
    names = [
        line.split(":", 1)[1] for line in cpuinfo.splitlines() if line.startswith("model name")
    ]
    found.add(section, "name", names[0].strip() if names else platform.processor() or "unknown")
    machine = read_machine()
    found.add(section, "features", " ".join(f for f in _FEATURES if f in machine.flags) or "none")
    if flags_of_cpuinfo(cpuinfo) >= AMX and not machine.flags >= AMX:
        found.remark(
            "the system does not give processes the processor's registers for matrices (AMX): "
            "products of bfloat16 and of 8-bit codes are slower"
        )
    caches = machine.caches
    sizes = (caches.l1d_bytes, caches.l2_bytes, caches.l3_bytes)
    found.add(section, "caches", ", ".join(f"{size >> 10} KiB" for size in sizes))
    try:
        target = host_target()
    except InvalidArgument as error:
        found.problem(str(error))
    else:
        found.add(section, "code for", target)
        _archive(found, section, target)
        best = target_for(best_isa(machine), machine)
        if best.name != target.name:
            found.remark(f"SARDONYX_CPU asks for {target.name}; the processor has {best.name}")
    quota = cgroup_quota()
    found.add(section, "processors", os.cpu_count() or "unknown")
    found.add(section, "by affinity", allowed_processors())
    limit = "none" if math.isinf(quota) else f"{quota:.2f} processors"
    found.add(section, "quota of control groups", limit)
    found.add(section, "usable", usable_processors())
    found.add(section, "threads of a run", thread_count())
    if thread_count() > usable_processors():
        found.remark(
            f"a run has {thread_count()} threads on {usable_processors()} processors: "
            "threads will wait for each other"
        )
    try:
        loads = ", ".join(f"{x:.1f}" for x in os.getloadavg())
        found.add(section, "load (1, 5, 15 minutes)", loads)
    except OSError:
        found.add(section, "load (1, 5, 15 minutes)", "unknown")


def _archive(found: Findings, section: str, target: Target) -> None:
    archive = archive_for(target)
    if archive is None:
        found.add(section, "kernels ahead", "none: install sardonyx-kernels")
        return
    found.add(section, "kernels ahead", f"{archive.path}, {archive.count} entries")
    if not archive.is_current:
        found.remark(
            "the kernels compiled ahead are for other source: first sessions find some of them"
        )


def _memory(found: Findings) -> None:
    section = "memory"
    values = {
        line.split(":")[0]: int(line.split()[1]) * 1024
        for line in text_of("/proc/meminfo").splitlines()
        if line.endswith("kB")
    }
    for key, name in (("MemTotal", "machine"), ("MemAvailable", "available"), ("SwapFree", "swap")):
        if key in values:
            found.add(section, name, gigabytes(values[key]))
    # A group without a limit has a number in some systems, beyond all memory.
    limits = [x for x in group_limits() if x < values.get("MemTotal", math.inf)]
    found.add(section, "limit of control groups", gigabytes(min(limits)) if limits else "none")
    found.add(section, "a session may have", gigabytes(machine_memory_bytes()))


def _cache(found: Findings) -> None:
    section = "cache"
    cache = default_cache()
    if cache.folder is None:
        found.add(section, "folder", "none")
        if str(knobs.get("SARDONYX_CACHE") or "").lower() == "off":
            found.remark("the cache is off: each process compiles its models again")
        else:
            found.problem("no folder to cache in can be written: set SARDONYX_CACHE to one")
        return
    found.add(section, "folder", cache.folder)
    size, count = _used(cache)
    found.add(section, "holds", f"{count} entries, {gigabytes(size)}")
    found.add(section, "limit", gigabytes(cache.limit_bytes))
    space = _space(cache.folder)
    if space is not None:
        found.add(section, "free space", gigabytes(space))
        if space < _LITTLE_SPACE_BYTES:
            found.remark(f"the cache's disk has {gigabytes(space)} left")
    key = f"doctor-{os.getpid()}"
    is_sound = cache.put(key, "doctor", b"a test") is not None
    is_sound = is_sound and cache.read(key, "doctor") == b"a test"
    cache.remove(key, "doctor")
    found.add(section, "writable", "yes" if is_sound else "no")
    if not is_sound:
        found.problem("the cache's folder cannot be written: set SARDONYX_CACHE to another one")


def _used(cache: Cache) -> tuple[int, int]:
    """Bytes and number of the cache's files."""
    assert cache.folder is not None  # noqa: S101 - narrows the type for the checker
    size = count = 0
    for folder, _, names in os.walk(cache.folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
            except OSError:  # another process has dropped it
                continue
            count += 1
    return size, count


def _space(folder: Path) -> int | None:
    if sys.platform == "win32":
        return None
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize


def _switches(found: Findings) -> None:
    section = "switches"
    for knob in knobs.all_knobs():
        if os.environ.get(knob.name):
            try:
                knobs.get(knob.name)
            except SardonyxError as error:
                found.problem(str(error))
            found.add(section, knob.name, _shown(os.environ[knob.name]))
    for name in _VARIABLES:
        if os.environ.get(name):
            found.add(section, name, _shown(os.environ[name]))
    if section not in found.sections:
        found.add(section, "set", "none")


def _shown(value: str) -> str | Path:
    return Path(value) if os.path.isabs(value) else value


def gigabytes(size: int) -> str:
    """A number of bytes in words."""
    return f"{size / 1e9:.2f} GB" if size >= 10**7 else f"{size} bytes"
