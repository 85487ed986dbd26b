import ctypes
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sardonyx.base import knobs
from sardonyx.base.errors import EngineError
from sardonyx.link.blob import blob_of
from sardonyx.link.elf import ObjectPart
from sardonyx.llvm.compile import FUNCTION_ATTRIBUTES
from sardonyx.targets.target import host_target
from sardonyx.workers import child, children
from sardonyx.workers import processes as started_module
from sardonyx.workers.child import compile_part
from sardonyx.workers.children import Children

TARGET = host_target()


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


def outcome(group, job):
    try:
        return group.result(job)
    except EngineError as error:
        return error


def compiled(texts, group):
    jobs = [group.submit(each) for each in texts]
    return [outcome(group, job) for job in jobs]


@pytest.fixture(autouse=True)
def two_processes():
    with knobs.override("SARDONYX_COMPILE_PROCESSES", 2):
        yield


@pytest.fixture
def started(monkeypatch):
    """How many processes were started, and their identifiers."""
    found = []
    original = subprocess.Popen

    def start(*arguments, **named):
        found.append(original(*arguments, **named))
        return found[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return found


def test_texts_are_compiled_as_here(started):
    texts = [text(value) for value in range(40)]
    with Children(TARGET) as group:
        found = compiled(texts, group)
    assert found == [compile_part(each, TARGET, 2) for each in texts]
    assert len(started) == 1
    assert started[0].wait() == 0


@pytest.mark.parametrize("can_fork", [True, False])
def test_much_text_gets_a_second_process(can_fork, started, monkeypatch):
    monkeypatch.setattr(children, "_CAN_FORK", can_fork and children._CAN_FORK)
    monkeypatch.setattr(children, "_BACKLOG_BYTES", 300)
    monkeypatch.setattr(children, "_AHEAD_BYTES", 100)
    texts = [text(value) for value in range(20)]
    with Children(TARGET) as group:
        found = compiled(texts, group)
        assert len(group._children) == 2
    assert found == [compile_part(each, TARGET, 2) for each in texts]
    assert len(started) == (1 if children._CAN_FORK else 2)


@pytest.mark.skipif(not children._CAN_FORK, reason="a twin is a fork")
def test_processes_leave_the_processor_to_who_feeds_them(started):
    with Children(TARGET) as group:
        while not all(each.ready for each in group._children) or len(group._children) < 2:
            group.result(group.submit(text(1)))
        listed = Path(f"/proc/{started[0].pid}/task/{started[0].pid}/children")
        for process in started[0].pid, *map(int, listed.read_text().split()):
            mine = os.getpriority(os.PRIO_PROCESS, 0)
            assert os.getpriority(os.PRIO_PROCESS, process) == min(19, mine + child._NICE)


@pytest.mark.skipif(not children._CAN_FORK, reason="a twin is a fork")
@pytest.mark.parametrize("dies", ["process", "twin"])
def test_twins_do_not_need_each_other(dies, started):
    with Children(TARGET) as group:
        group.result(group.submit(text(1)))
        first, twin = group._children
        while not twin.ready:
            group.result(group.submit(text(1)))
        signal.pidfd_send_signal(
            os.pidfd_open(started[0].pid) if dies == "process" else twin._handle.fileno(),
            signal.SIGKILL,
        )
        assert compiled([text(value) for value in range(20)], group) == [
            compile_part(text(value), TARGET, 2) for value in range(20)
        ]
        assert (first if dies == "process" else twin) not in group._children


@pytest.mark.skipif(not children._CAN_FORK, reason="a twin is a fork")
@pytest.mark.parametrize("is_ready", [True, False])
def test_twins_end(is_ready, started):
    with Children(TARGET) as group:
        group.start()
        _, twin = group._children
        if is_ready:
            while not twin.ready:
                group.result(group.submit(text(1)))
        ends = os.dup(twin.back.fileno())
    deadline = time.monotonic() + 10
    while not _is_over(ends):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.close(ends)


@pytest.mark.skipif(not children._CAN_FORK, reason="a twin is a fork")
@pytest.mark.parametrize("is_busy", [True, False])
def test_twins_are_left_to_nobody(is_busy, started, adopting):
    with Children(TARGET) as group:
        group.result(group.submit(text(1)))
        while not group._children[1].ready:
            group.result(group.submit(text(1)))
        listed = Path(f"/proc/{started[0].pid}/task/{started[0].pid}/children")
        (twin,) = listed.read_text().split()
        for value in range(20 if is_busy else 0):
            group.submit(text(value))
    deadline = time.monotonic() + 10
    while Path("/proc", twin).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.skipif(not children._CAN_FORK, reason="a twin is a fork")
def test_a_signal_while_they_are_ended_leaves_nothing(monkeypatch):
    def interrupted(*_arguments):
        raise KeyboardInterrupt

    def end():
        group = Children(TARGET)
        group.result(group.submit(text(1)))
        group.close()

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(started_module.Child, "kill_twin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        end()
    deadline = time.monotonic() + 10
    while len(os.listdir("/proc/self/fd")) > before:
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.01)


@pytest.fixture
def adopting():
    """This process gets orphans, and does not look after them, as the first of a container."""
    library = ctypes.CDLL(None)
    assert library.prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
    yield
    library.prctl(36, 0, 0, 0, 0)


@pytest.mark.skipif(not children._CAN_FORK, reason="a twin is a fork")
def test_a_process_does_without_twins_that_cannot_be_forked(started, monkeypatch):
    refuse = "import os\ndef refuse(): raise OSError('no more')\nos.fork = refuse\nserve()"
    monkeypatch.setattr(child, "_BOOTSTRAP", child._BOOTSTRAP.replace("serve()\n", refuse))
    with Children(TARGET) as group:
        assert compiled([text(1), BAD, text(2)], group)[2] == compile_part(text(2), TARGET, 2)
        assert [c.ready for c in group._children] == [True]
    assert len(started) == 1


def _is_over(pipe):
    """Whether nobody can write to a pipe any more."""
    try:
        return not os.read(pipe, 1000)
    except BlockingIOError:
        return False


def test_texts_larger_than_a_pipe():
    long = [text(value) + "; " + "x" * 300_000 + "\n" for value in range(5)]
    with Children(TARGET) as group:
        assert compiled(long, group) == [compile_part(text(v), TARGET, 2) for v in range(5)]


def test_a_text_that_ends_the_process_takes_no_other_with_it(started):
    with Children(TARGET) as group:
        found = compiled([text(1), FATAL, BAD, text(2)], group)
    assert [type(result) for result in found] == [bytes, EngineError, EngineError, bytes]
    assert "LLVM ended the process that compiled it (" in str(found[1])
    assert "Cannot select" in str(found[1])
    assert "| " in str(found[2])
    assert blob_of([ObjectPart.from_bytes(found[3])], TARGET).symbols == {"f": 0}
    assert len(started) <= 3


def test_a_process_that_is_killed_is_replaced(started):
    with Children(TARGET) as group:
        group.result(group.submit(text(1)))
        started[0].kill()
        started[0].wait()
        assert compiled([text(2), text(3)], group) == [
            compile_part(text(value), TARGET, 2) for value in (2, 3)
        ]


def test_a_process_that_hangs_is_replaced(started, monkeypatch):
    with Children(TARGET) as group:
        group.result(group.submit(text(1)))
        os.kill(started[0].pid, signal.SIGSTOP)
        monkeypatch.setattr(started_module, "_ANSWER_SECONDS", 0.0)
        job = group.submit(text(2))
        time.sleep(0.05)
        group._pump(0.0)
        monkeypatch.undo()
        assert group.result(job) == compile_part(text(2), TARGET, 2)
    assert started[0].wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    "script", ["raise SystemExit(7)", "import time; time.sleep(60)", "import os; os.abort()"]
)
def test_processes_that_do_not_start_are_done_without(script, monkeypatch, caplog):
    monkeypatch.setattr(child, "_BOOTSTRAP", script)
    monkeypatch.setattr(started_module, "_START_SECONDS", 0.5)
    with Children(TARGET) as group:
        assert compiled([text(1), text(2)], group) == [
            compile_part(text(value), TARGET, 2) for value in (1, 2)
        ]


def test_the_system_has_no_more_processes(monkeypatch):
    def refuse(*_args, **_named):
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with Children(TARGET) as group:
        group.start()
        found = compiled([text(1), BAD], group)
    assert found[0] == compile_part(text(1), TARGET, 2)
    assert isinstance(found[1], EngineError)


@pytest.mark.parametrize(
    ("executable", "frozen", "count"),
    [
        ("/usr/bin/python3", False, 2), ("/usr/bin/python3", True, 0),
        ("/usr/bin/uwsgi", False, 0), ("", False, 0), (None, False, 0),
    ],
)  # fmt: skip
def test_only_python_is_started(executable, frozen, count, monkeypatch):
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    assert children.most_children() == count


def test_one_process_means_here(started):
    with knobs.override("SARDONYX_COMPILE_PROCESSES", 1), Children(TARGET) as group:
        group.start()
        assert compiled([text(1)], group) == [compile_part(text(1), TARGET, 2)]
    assert not started


def test_children_import_little(monkeypatch):
    """Where a model is new that is a part of its load: a fifth of what LLVM takes to be there."""
    listed = "print(*sys.modules)"
    script = child._BOOTSTRAP.replace("serve()", listed).replace("import serve", "import _read")
    monkeypatch.setattr(child, "_BOOTSTRAP", script)
    done = subprocess.run(child.command(), capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert {name for name in imported if name.startswith("sardonyx.")} == {
        "sardonyx.base", "sardonyx.base.errors", "sardonyx.base.forks", "sardonyx.base.printable",
        "sardonyx.workers", "sardonyx.workers.child", "sardonyx.llvm", "sardonyx.llvm.compile",
        "sardonyx.link", "sardonyx.link.elf", "sardonyx.link.relocate",
    }  # fmt: skip
    assert imported.isdisjoint({"ctypes", "dataclasses", "inspect", "numpy"})


def test_what_ends_the_waiting_ends_the_processes(started):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Children(TARGET, stop) as group:
        group.result(group.submit(text(1)))
    assert started[0].wait() == -signal.SIGKILL
