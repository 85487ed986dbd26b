import ctypes

import numpy as np
import pytest

from sardonyx.link.blob import build
from sardonyx.link.executable_memory import load_blob
from sardonyx.llvm.compile import FUNCTION_ATTRIBUTES, PIPELINES
from sardonyx.targets.machine import Caches, Machine
from sardonyx.targets.target import host_target, target_for
from tests.support import foreign
from tests.support.programs import INPUTS, PROGRAMS

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

NEON = target_for("neon", Machine("x86_64", frozenset(), Caches()))
needs_qemu = pytest.mark.skipif(foreign.QEMU is None, reason="qemu-aarch64 is not installed")

# Constants of every width, past the first page of the image, and calls over a distance.
FILLER = "\n".join(
    f"""define i64 @fill{i}(i64 %x) {FUNCTION_ATTRIBUTES} {{
  %a = mul i64 %x, {i * 0x123456789ABCDEF}
  %b = xor i64 %a, {i * 0x11223344556677}
  ret i64 %b
}}"""
    for i in range(150)
)
TABLES = "\n".join(
    f"@t{bits} = constant [8 x i{bits}] [{', '.join(f'i{bits} {i * 13 + 1}' for i in range(8))}]"
    for bits in (8, 16, 32, 64)
)
LOADS = "\n".join(
    f"""  %p{bits} = getelementptr i{bits}, ptr @t{bits}, i64 3
  %v{bits} = load i{bits}, ptr %p{bits}
  %q{bits} = getelementptr i{bits}, ptr @t{bits}, i64 %i
  %w{bits} = load i{bits}, ptr %q{bits}"""
    for bits in (8, 16, 32, 64)
)
SUMS = "\n".join(
    f"""  %{v}x{bits} = zext i{bits} %{v}{bits} to i128
  %{v}s{bits} = add i128 %{v}x{bits}, %{before}"""
    for bits, v, before in (
        (8, "v", "x128"),
        (8, "w", "vs8"),
        (16, "v", "ws8"),
        (16, "w", "vs16"),
        (32, "v", "ws16"),
        (32, "w", "vs32"),
        (64, "v", "ws32"),
        (64, "w", "vs64"),
    )
)
WIDTHS = f"""
{TABLES}
{FILLER}
define i64 @main(i64 %x) {FUNCTION_ATTRIBUTES} {{
  %i = and i64 %x, 7
  %x128 = zext i64 %x to i128
{LOADS}
{SUMS}
  %s = trunc i128 %ws64 to i64
  %f = call i64 @fill149(i64 %s)
  ret i64 %f
}}
"""


@needs_qemu
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run(name, tmp_path):
    text, expected = PROGRAMS[name]
    blob = build(text, NEON)
    found = [foreign.call(blob, "main", [x], tmp_path)[0] for x in INPUTS]
    assert found == [expected(x) for x in INPUTS]


@needs_qemu
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_all_widths_agree_with_this_machine(pipeline, tmp_path):
    code = load_blob(build(WIDTHS, host_target(), pipeline=pipeline))
    native = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("main"))
    blob = build(WIDTHS, NEON, pipeline=pipeline)
    assert len(blob.image) > 4096
    for x in (0, 5, 1 << 40):
        assert foreign.call(blob, "main", [x], tmp_path)[0] == native(x)


BUFFERS = f"""
define i64 @main(ptr %a, ptr %b, i64 %n) {FUNCTION_ATTRIBUTES} {{
  %x = load <8 x float>, ptr %a, align 4
  %c = fmul <8 x float> %x, <float 0.5, float 1.5, float 2.5, float 3.5,
                             float 4.5, float 5.5, float 6.5, float 7.5>
  store <8 x float> %c, ptr %b, align 4
  ret i64 %n
}}
"""


@needs_qemu
def test_buffers(tmp_path):
    values = np.arange(8, dtype=np.float32)
    value, (_, after) = foreign.call(
        build(BUFFERS, NEON), "main", [values.tobytes(), bytes(32), -5], tmp_path
    )
    assert value == -5
    assert np.frombuffer(after, np.float32).tolist() == [i * (i + 0.5) for i in range(8)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_link(name):
    blob = build(PROGRAMS[name][0], NEON)
    assert blob.target_name == "aarch64-neon"
    assert "main" in blob.symbols
    assert len(blob.to_bytes()) == 65536 + len(blob.image)
