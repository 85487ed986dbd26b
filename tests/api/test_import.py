"""`import sardonyx` loads its face, not its engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Modules that a program pays for only once it makes a session.
HEAVY = (
    "llvmlite", "onnx", "torch", "PIL", "importlib.metadata", "difflib", "json", "mmap",
    "pathlib", "urllib.parse", "sardonyx.api.generation", "sardonyx.api.inspection",
    "sardonyx.tensor", "sardonyx.ir", "sardonyx.ops", "sardonyx.loader", "sardonyx.passes",
    "sardonyx.plan", "sardonyx.kernel", "sardonyx.selection", "sardonyx.llvm", "sardonyx.cpu",
    "sardonyx.compiler.drive", "sardonyx.runtime.executable",
)  # fmt: skip


def test_importing_loads_no_engine() -> None:
    code = f"import sys, numpy; before = set(sys.modules); import sardonyx\n\
print(sorted(set({HEAVY!r}) & (set(sys.modules) - before)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_what_is_loaded_later_is_there() -> None:
    code = """import sys, sardonyx
print("generate" in dir(sardonyx), "generate" in vars(sardonyx), end=" ")
found = sardonyx.generate
print(found is sardonyx.generate is vars(sardonyx)["generate"], end=" ")
from sardonyx import Generation
from sardonyx.api.generation import generate
print(generate.Generation is Generation, sorted(set(sardonyx.__all__) - set(dir(sardonyx))))
try:
    sardonyx.generates
except AttributeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True False True True []\nThere is no 'generates' in this module\n"
