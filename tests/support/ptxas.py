"""PTX given to NVIDIA's assembler, where that is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]
with_ptxas = pytest.mark.skipif(
    shutil.which("ptxas") is None, reason="PTX is not assembled: there is no ptxas (CUDA 12.8)"
)


def assemble(text: str, architecture: str, *options: str) -> str:
    """What ptxas says of registers and spilling; fails with its text where it takes it not."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(text)
        command = [
            "ptxas",
            f"-arch={architecture}",
            "-v",
            *options,
            str(source),
            "-o",
            f"{source}.out",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr
