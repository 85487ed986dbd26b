"""The interpreter ends, or begins to be used, while sessions are at work: no message, no hang."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import life_cycle

ROOT = Path(__file__).resolve().parents[2]
# As programs are that say nothing about it: kernels are compiled in child processes.
ENVIRONMENT = {**os.environ, "SARDONYX_COMPILE_PROCESSES": "0"}
PRELUDE = """
import atexit, gc, os, signal, sys, threading, time, weakref
import sardonyx
from tests.support.life_cycle import *
SHORT, LONG = (open(path, "rb").read() for path in sys.argv[1:])
"""

PROGRAMS = {
    "a session lives": "s = session(SHORT); check(s)",
    "a session in a cycle": "s = session(SHORT); check(s); d = {'s': s}; d['d'] = d",
    "a daemon in a run": """
s = session(LONG)
threading.Thread(target=lambda: s.run(None, long_feeds()), daemon=True).start()
time.sleep(0.2)
""",
    "daemons that run again and again": """
s = session(SHORT)
def repeat():
    while True:
        check(s)
for _ in range(4):
    threading.Thread(target=repeat, daemon=True).start()
time.sleep(0.2)
""",
    "threads that have to finish": """
s = session(SHORT)
def repeat():
    for _ in range(50):
        check(s)
for _ in range(3):
    threading.Thread(target=repeat).start()
""",
    "runs in an executor": """
from concurrent.futures import ThreadPoolExecutor
s, executor = session(SHORT), ThreadPoolExecutor(4)
done = [executor.submit(check, s) for _ in range(100)]
sys.exit(0)
""",
    "an asynchronous run": """
s = session(LONG)
s.run_async(None, long_feeds(), lambda *_: print("never"), None)
time.sleep(0.2)
""",
    "runs and new sessions at exit": """
s = session(SHORT)
check(s)
atexit.register(lambda: (check(s), check(session(SHORT))))
""",
    "first use at exit": "atexit.register(lambda: check(session(SHORT)))",
    "runs in finalizers": """
class Holder:
    def __init__(self):
        self.session, self.itself = session(SHORT), self
    def __del__(self):
        check(self.session)
first, second = Holder(), Holder()
del second.itself
s = session(SHORT)
weakref.finalize(first, check, s)
""",
    "a daemon that compiles": """
os.environ["SARDONYX_CACHE"] = "off"
def repeat():
    while True:
        session(SHORT)
threading.Thread(target=repeat, daemon=True).start()
time.sleep(0.5)
""",
    "first use by many threads at once": """
os.environ["SARDONYX_CACHE"] = "off"
wrong = []
def work():
    try:
        for _ in range(2):
            check(session(SHORT))
    except BaseException as error:
        wrong.append(error)
threads = [threading.Thread(target=work) for _ in range(6)]
for t in threads: t.start()
for t in threads: t.join()
assert not wrong
""",
    "forks while another thread uses the engine first": """
first = threading.Thread(target=lambda: check(session(SHORT)))
first.start()
for _ in range(5):
    in_child(lambda: check(session(SHORT)))
first.join()
""",
    "a forked process ends like any other": """
s = session(SHORT)
check(s)
process = os.fork()
check(s)
if process:
    assert os.waitpid(process, 0)[1] == 0
""",
    "a signal that is not handled": """
s = session(LONG)
process = os.fork()
if process == 0:
    s.run(None, long_feeds())
time.sleep(0.3)
os.kill(process, signal.SIGTERM)
assert os.WTERMSIG(os.waitpid(process, 0)[1]) == signal.SIGTERM
""",
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    (folder / "short.onnx").write_bytes(life_cycle.short())
    (folder / "long.onnx").write_bytes(life_cycle.long())
    return [str(folder / "short.onnx"), str(folder / "long.onnx")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="written for systems that fork")
@pytest.mark.parametrize("name", PROGRAMS)
def test_ends_in_silence(name: str, paths: list[str]) -> None:
    command = [
        sys.executable, "-W", life_cycle.FORKS, "-X", "faulthandler",
        "-c", PRELUDE + PROGRAMS[name], *paths,
    ]  # fmt: skip
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False, env=ENVIRONMENT
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_the_first_interrupt_ends_a_program(paths: list[str]) -> None:
    program = """
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
session(LONG).run(None, long_feeds())
"""
    command = [sys.executable, "-c", PRELUDE + program, *paths]
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False, env=ENVIRONMENT
    )
    assert found.returncode in (1, -2)
    assert found.stderr.rstrip().endswith("KeyboardInterrupt")
