import subprocess
import sys

import pytest

from sardonyx.base import knobs
from sardonyx.base.errors import InvalidArgument
from sardonyx.kernel.matmul.micro import ROWS
from sardonyx.llvm.compile import FUNCTION_ATTRIBUTES, emit_assembly
from sardonyx.targets.machine import Caches, Machine, caches_of_sysfs, flags_of_cpuinfo
from sardonyx.targets.target import best_isa, check_isa, host_target, target_for

V2 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
V3 = V2 + " avx avx2 bmi1 bmi2 f16c fma abm movbe"
V4 = V3 + " avx512f avx512bw avx512cd avx512dq avx512vl"


def machine(flags: str, arch: str = "x86_64") -> Machine:
    return Machine(arch, frozenset(flags.split()), Caches(48 * 1024, 2**21, 2**25))


@pytest.mark.parametrize(
    ("flags", "arch", "name", "bits", "registers"),
    [
        (V4, "x86_64", "x86-64-v4-avx512", 512, 32),
        (V3, "x86_64", "x86-64-v3-avx2", 256, 16),
        (V4.replace("avx512dq", ""), "x86_64", "x86-64-v3-avx2", 256, 16),
        (V3.replace(" fma", ""), "x86_64", "x86-64-v2-sse", 128, 16),
        ("", "x86_64", "x86-64-sse", 128, 16),
        ("", "aarch64", "aarch64-neon", 128, 32),
    ],
)
def test_levels(flags, arch, name, bits, registers):
    found = target_for(best_isa(machine(flags, arch)), machine(flags, arch))
    assert (found.name, found.vector_bits, found.registers) == (name, bits, registers)
    assert found.lanes(32) == bits // 32


def test_sizes_of_caches_change_no_target():
    """Kernels compiled ahead are for all machines of equal instructions."""
    small = Machine("x86_64", frozenset(V4.split()), Caches(32 * 1024, 2**19, 2**23))
    assert target_for("avx512", small) == target_for("avx512", machine(V4))


@pytest.mark.parametrize(
    ("isa", "flags", "arch", "features"),
    [
        ("avx512", V4, "x86_64", "-prefer-256-bit"),
        (
            "avx512",
            V4 + " avx512_vnni avx512_bf16",
            "x86_64",
            "-prefer-256-bit,+avx512vnni,+avx512bf16",
        ),
        ("avx2", V4 + " avx512_vnni", "x86_64", ""),
        ("avx2", V4 + " avx_vnni", "x86_64", "+avxvnni"),
        ("neon", "asimddp i8mm", "aarch64", "+neon,+reserve-x18,+dotprod,+i8mm"),
        ("neon", V4, "x86_64", "+neon,+reserve-x18"),
        ("avx2", "asimddp", "aarch64", ""),
    ],
)
def test_features(isa, flags, arch, features):
    assert target_for(isa, machine(flags, arch)).features == features


def test_more_than_the_machine_has_is_refused():
    with pytest.raises(InvalidArgument, match="cannot run avx512 code: it lacks avx512bw"):
        check_isa("avx512", machine(V3))
    with pytest.raises(InvalidArgument, match="Expected neon or less, got sse"):
        check_isa("sse", machine("", "aarch64"))
    check_isa("avx2", machine(V4))
    check_isa("neon", machine(V3))


def test_knob_is_checked(monkeypatch):
    monkeypatch.setenv("SARDONYX_CPU", "quick")
    with pytest.raises(InvalidArgument, match="Expected avx512, avx2, sse or neon, got 'quick'"):
        host_target()
    monkeypatch.setenv("SARDONYX_CPU", "neon")
    assert host_target().arch == "aarch64"
    assert "SARDONYX_CPU=neon" in knobs.code_signature()


VECTORS = f"""
define void @f(ptr %a, ptr %b) {FUNCTION_ATTRIBUTES} {{
  %x = load <16 x float>, ptr %a, align 4
  %y = fadd <16 x float> %x, %x
  store <16 x float> %y, ptr %b, align 4
  ret void
}}
"""


@pytest.mark.parametrize(
    ("isa", "register"), [("avx512", "zmm"), ("avx2", "ymm"), ("sse", "xmm"), ("neon", "v0.4s")]
)
def test_vector_registers(isa, register):
    arch = "aarch64" if isa == "neon" else "x86_64"
    assembly = emit_assembly(VECTORS, target_for(isa, machine(V4, arch)))
    found = [name for name in ("zmm", "ymm", "xmm", "v0.4s") if name in assembly]
    assert found == [register]


def test_flags_are_those_of_all_processors():
    text = "processor : 0\nflags\t\t: a b c\n\nprocessor : 1\nflags\t\t: b c d\n"
    assert flags_of_cpuinfo(text) == {"b", "c"}
    assert flags_of_cpuinfo("Features : asimd fp\n") == {"asimd", "fp"}
    assert flags_of_cpuinfo("") == frozenset()


def test_cache_sizes(tmp_path):
    rows = [("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M")]
    for index, (level, kind, size) in enumerate(rows):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(value + "\n")
    assert caches_of_sysfs(tmp_path) == Caches(48 * 1024, 2**21, 2**21)
    assert caches_of_sysfs(tmp_path / "absent") == Caches()


def test_detection_does_not_import_llvmlite():
    script = (
        "import sys; from sardonyx.targets.target import host_target; host_target();"
        "import sardonyx.link.blob, sardonyx.link.executable_memory;"
        "sys.exit('llvmlite' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(
    ("isa", "arch"),
    [("avx512", "x86_64"), ("avx2", "x86_64"), ("sse", "x86_64"), ("neon", "aarch64")],
)
def test_tiles_of_products_fit_the_registers(isa, arch):
    target = target_for(isa, machine(V4 if arch == "x86_64" else "", arch))
    for rows in ROWS:
        vectors = target.block_sizes.vectors_of(rows)
        # Sums, the columns of a step and one factor.
        assert rows * vectors + vectors + 1 <= target.registers
