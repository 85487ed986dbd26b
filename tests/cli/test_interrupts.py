"""Ctrl-C while a command starts, whatever is being imported: one line, and status 130."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Ctrl-C comes as Python looks for a module.
_HOOK = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
"""
_SCRIPT = "import sys\nfrom sardonyx.cli.main import main\nsys.exit(main())\n"
_PACKAGE = Path(__file__).resolve().parents[2]


def _ended(folder: Path, module: str, command: list[str]) -> tuple[int, str]:
    (folder / "sitecustomize.py").write_text(_HOOK)
    path = os.pathsep.join((str(folder), str(_PACKAGE)))
    # A session seen before imports less.
    environment = {
        **os.environ, "PYTHONPATH": path, "INTERRUPTED_AT": module, "SARDONYX_CACHE": "off",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *command], env=environment, cwd=folder, text=True, timeout=60,
        capture_output=True,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("by", "module"),
    [("script", "numpy"), ("script", "ml_dtypes"), ("script", "sardonyx.api.session"),
     ("script", "sardonyx.cli.run"), ("script", "sardonyx.loader.load"),
     ("module", "numpy.linalg"), ("module", "sardonyx.cli.main")],
)  # fmt: skip
def test_imports(tmp_path: Path, by: str, module: str) -> None:
    script = tmp_path / "sardonyx"
    command = [str(script)] if by == "script" else ["-m", "sardonyx"]
    if by == "script":
        script.write_text(_SCRIPT)
    model = Path(__file__).resolve().parents[2] / "sardonyx/datasets/mul_1.onnx"
    assert _ended(tmp_path, module, [*command, "run", str(model)]) == (
        130, "sardonyx: interrupted\n",
    )  # fmt: skip


def test_other_programs_see_the_exception(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("try:\n    import sardonyx\nexcept KeyboardInterrupt:\n    print(1 / 0)\n")
    status, text = _ended(tmp_path, "sardonyx.api.session", [str(script)])
    assert status == 1
    assert "ZeroDivisionError" in text
    script.write_text(
        "import signal, sardonyx\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    assert _ended(tmp_path, "", [str(script)]) == (0, "")


def test_a_program_that_ignores_it_still_does(tmp_path: Path) -> None:
    script = tmp_path / "sardonyx"
    script.write_text(f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{_SCRIPT}")
    assert _ended(tmp_path, "numpy", [str(script), "--version"])[0] == 0
