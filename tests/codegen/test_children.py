import subprocess

import pytest

from sardonyx.base import knobs
from sardonyx.base.errors import EngineError
from sardonyx.codegen import children
from sardonyx.codegen.blob import link
from sardonyx.codegen.children import compile_many
from sardonyx.codegen.compile import FUNCTION_ATTRIBUTES, compile_text
from sardonyx.codegen.target import host_target


def text(value: int) -> str:
    return f"define i32 @f() {FUNCTION_ATTRIBUTES} {{\n  ret i32 {value}\n}}\n"


BAD = text(1).replace("ret i32", "return i32")
# An intrinsic of another processor: LLVM cannot select an instruction and ends the process.
FATAL = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define i32 @f() nounwind {
  %x = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  ret i32 %x
}
"""


@pytest.fixture
def here_only(monkeypatch):
    def refuse(*_args, **_named):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def test_little_work_is_done_here(here_only):
    target = host_target()
    found = compile_many([text(1), BAD, text(2)], target)
    assert [found[0], found[2]] == [compile_text(text(value), target) for value in (1, 2)]
    assert isinstance(found[1], EngineError)
    assert compile_many([], target) == []


def test_one_process_means_here(here_only, monkeypatch):
    monkeypatch.setattr(children, "THRESHOLD_BYTES", 1)
    with knobs.override("SARDONYX_COMPILE_PROCESSES", 1):
        assert len(compile_many([text(1), text(2)], host_target())) == 2


def test_much_work_is_split(monkeypatch):
    started = []
    original = children._Child

    def start(options):
        started.append(1)
        return original(options)

    monkeypatch.setattr(children, "THRESHOLD_BYTES", 100)
    monkeypatch.setattr(children, "_Child", start)
    target = host_target()
    with knobs.override("SARDONYX_COMPILE_PROCESSES", 2):
        found = compile_many([text(value) for value in range(8)], target, pipeline="light")
    assert found == [compile_text(text(value), target, pipeline="light") for value in range(8)]
    assert 1 <= len(started) <= 2


def test_a_text_that_ends_the_process_is_named():
    with knobs.override("SARDONYX_COMPILE_PROCESSES", 1):
        found = compile_many([text(1), FATAL, BAD, text(2)], host_target(), apart=True)
    assert [type(result) for result in found] == [bytes, EngineError, EngineError, bytes]
    assert "LLVM ended the process that compiled text 1 (" in str(found[1])
    assert "| " in str(found[2])
    assert "Cannot select" in str(found[1])
    assert link(found[3], host_target()).symbols == {"f": 0}


def test_children_that_cannot_start(monkeypatch):
    def refuse(*_args, **_named):
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    target = host_target()
    assert compile_many([text(1)], target, apart=True) == [compile_text(text(1), target)]


def test_children_that_die_at_once(monkeypatch):
    monkeypatch.setattr(children, "_BOOTSTRAP", "raise SystemExit(7)")
    (found,) = compile_many([text(1)], host_target(), apart=True)
    assert "exit status 7" in str(found)


def test_children_import_little(monkeypatch):
    listed = "sys.exit('imported ' + repr([m for m in ('numpy', 'ctypes') if m in sys.modules]))"
    script = children._BOOTSTRAP.replace("serve()", listed).replace("import serve", "import _read")
    monkeypatch.setattr(children, "_BOOTSTRAP", script)
    (found,) = compile_many([text(1)], host_target(), apart=True)
    assert "imported ['ctypes']" in str(found)


def test_interruption_ends_the_children(monkeypatch):
    joined = []

    def join(self, timeout=None):
        joined.append(self.name)
        raise KeyboardInterrupt

    monkeypatch.setattr(children, "_BOOTSTRAP", "import time\ntime.sleep(60)")
    with monkeypatch.context() as context:
        context.setattr(children.threading.Thread, "join", join)
        with pytest.raises(KeyboardInterrupt):
            compile_many([text(1)], host_target(), apart=True)
    for thread in children.threading.enumerate():
        if thread.name == "sardonyx-compile":
            thread.join(10)
            assert not thread.is_alive()
