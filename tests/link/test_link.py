import ctypes
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from sardonyx.base.errors import EngineError, InvalidArgument, NotFound
from sardonyx.link import executable_memory
from sardonyx.link.blob import Blob, build, link
from sardonyx.link.executable_memory import load_blob, load_part
from sardonyx.llvm.compile import FUNCTION_ATTRIBUTES, PIPELINES, compile_text, emit_assembly
from sardonyx.targets.target import host_target
from tests.support.programs import INPUTS, PROGRAMS, SWITCH, TABLE, VECTOR

#: Goes through the targets by itself.
pytestmark = pytest.mark.once

PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


def load_file(path):
    """What a file has."""
    with path.open("rb") as file:
        return load_part(file.fileno(), 0, path.stat().st_size)


def run(code, x):
    return PROTOTYPE(code.address("main"))(x)


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_text_runs(name, pipeline):
    text, expected = PROGRAMS[name]
    code = load_blob(build(text, host_target(), pipeline=pipeline))
    assert [run(code, x) for x in INPUTS] == [expected(x) for x in INPUTS]


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_levels_agree(level):
    code = load_blob(build(SWITCH, host_target(), level=level))
    assert [run(code, x) for x in INPUTS] == [PROGRAMS["switch"][1](x) for x in INPUTS]


def test_file_round_trip(tmp_path):
    blob = build(TABLE, host_target())
    assert Blob.from_bytes(blob.to_bytes() + b"more") == blob
    path = tmp_path / "code"
    path.write_bytes(blob.to_bytes() + b"bytes behind the image")
    code = load_file(path)
    assert run(code, 2) == 30
    assert code.symbols == ("main", "table")
    with pytest.raises(NotFound, match="no function 'absent'"):
        code.address("absent")


@pytest.mark.skipif(
    not executable_memory.sys.platform.startswith("linux"), reason="maps files on Linux"
)
def test_file_is_borrowed_and_falls_back_to_memory(tmp_path, monkeypatch):
    path = tmp_path / "code"
    path.write_bytes(build(TABLE, host_target()).to_bytes())
    assert load_file(path).from_file

    def refuse(*_):
        raise PermissionError(1, "noexec")

    monkeypatch.setattr(executable_memory, "_map_file", refuse)
    code = load_file(path)
    assert not code.from_file
    assert run(code, 3) == 40


def test_memory_is_never_writable_and_executable():
    code = load_blob(build(TABLE, host_target()))
    with open("/proc/self/maps") as maps:
        spans = [line.split()[:2] for line in maps]
    found = [
        rights
        for span, rights in spans
        if int(span.split("-")[0], 16) <= code.base < int(span.split("-")[1], 16)
    ]
    assert found == ["r-xp"]


@pytest.mark.parametrize("position", [0, 9, 20, 45, -1])
def test_damaged_file_is_refused(tmp_path, position):
    data = bytearray(build(TABLE, host_target()).to_bytes())
    data[position] ^= 0x10
    path = tmp_path / "code"
    path.write_bytes(data)
    with pytest.raises(EngineError):
        load_file(path)


def test_cut_or_empty_file_is_refused(tmp_path):
    path = tmp_path / "code"
    for size in (0, 3, 100, 4096):
        path.write_bytes(build(TABLE, host_target()).to_bytes()[:size])
        with pytest.raises(EngineError, match="empty|cut short"):
            load_file(path)


def function(body: str, before: str = "") -> str:
    return f"{before}\ndefine i64 @main(i64 %x) {{\n{body}\n}}\n"


REFUSED = {
    "undefined function": (
        function("%r = call i64 @elsewhere(i64 %x)\nret i64 %r", "declare i64 @elsewhere(i64)"),
        "does not contain: elsewhere",
    ),
    "libm call": (
        function(
            "%d = sitofp i64 %x to double\n%e = call double @llvm.exp.f64(double %d)\n"
            "%r = fptosi double %e to i64\nret i64 %r",
            "declare double @llvm.exp.f64(double)",
        ),
        "does not contain: exp",
    ),
    "writable global": (
        function("%r = load i64, ptr @g\nret i64 %r", "@g = global i64 5"),
        r"writable data \(section .data",
    ),
    "zeroed global": (
        function("%r = load i64, ptr @g\nret i64 %r", "@g = global i64 0"),
        r"writable data \(section .bss",
    ),
    "stored address": (
        function(
            "%p = getelementptr ptr, ptr @g, i64 %x\n%q = load ptr, ptr %p\n"
            "%r = load i64, ptr %q\nret i64 %r",
            "@v = constant i64 1\n@g = constant [2 x ptr] [ptr @v, ptr @v]",
        ),
        "section .data.rel.ro",
    ),
    "syntax": (function("ret i32 0"), r"> +3 \| ret i32 0"),
    "invalid module": (
        function("br label %b\nb:\n%y = add i64 %z, 1\n%z = add i64 %x, 1\nret i64 %y"),
        "LLVM refuses the generated text",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    text, expected = REFUSED[name]
    with pytest.raises(EngineError, match=expected):
        build(text, host_target())


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\0" * 80, b"x" * 200])
def test_link_refuses_other_bytes(data):
    with pytest.raises(EngineError, match="The object is"):
        link(data, host_target())


def test_objects_are_elf_and_deterministic():
    target = host_target()
    first = compile_text(VECTOR, target)
    assert first[:4] == b"\x7fELF"
    assert first == compile_text(VECTOR, target)
    assert "main:" in emit_assembly(VECTOR, target)


def test_code_for_another_processor_is_refused(tmp_path):
    blob = build(TABLE, host_target())
    other = Blob(blob.image, blob.symbols, "riscv64-rvv")
    path = tmp_path / "code"
    path.write_bytes(other.to_bytes())
    for load, source in ((load_blob, other), (load_file, path)):
        with pytest.raises(InvalidArgument, match="for another processor.*got riscv64-rvv"):
            load(source)


ZEROING = f"""
define i64 @main(ptr %p, i64 %n) {FUNCTION_ATTRIBUTES} {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %q = getelementptr i8, ptr %p, i64 %i
  store i8 0, ptr %q
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %n
  br i1 %more, label %loop, label %out
out:
  ret i64 0
}}
"""


def test_loops_do_not_become_library_calls():
    assert build(ZEROING, host_target(), pipeline="full").symbols == {"main": 0}
    with pytest.raises(EngineError, match="does not contain: memset"):
        build(ZEROING.replace(FUNCTION_ATTRIBUTES, ""), host_target(), pipeline="full")


def test_threads_compile_at_once():
    target = host_target()
    expected = [compile_text(text, target) for text, _ in PROGRAMS.values()]
    with ThreadPoolExecutor(4) as pool:
        jobs = [text for text, _ in PROGRAMS.values()] * 4
        found = list(pool.map(lambda text: compile_text(text, target, pipeline="none"), jobs))
    assert found == expected * 4


def test_code_is_freed_with_its_last_reference_and_not_at_exit():
    freed = []
    code = load_blob(build(TABLE, host_target()))
    base = code.base
    with pytest.MonkeyPatch.context() as context:
        context.setattr(executable_memory._system, "munmap", lambda *span: freed.append(span))
        del code
    assert [span[0] for span in freed] == [base]


EXITING = """
import ctypes, threading, time
from sardonyx.link.blob import build
from sardonyx.targets.target import host_target
from sardonyx.link.executable_memory import load_blob, load_part
code = load_blob(build('''
define void @spin(ptr %p) nounwind {
entry:
  store volatile i64 1, ptr %p
  br label %loop
loop:
  %x = load volatile i64, ptr %p
  br label %loop
}''', host_target()))
word = ctypes.c_int64()
spin = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address('spin'))
threading.Thread(target=spin, args=(ctypes.addressof(word),), daemon=True).start()
while not word.value:
    time.sleep(0.001)
"""


def test_exit_while_a_thread_runs_code():
    done = subprocess.run([sys.executable, "-c", EXITING], timeout=60, check=False)
    assert done.returncode == 0
