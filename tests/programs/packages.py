"""Packages with all that they import, in folders that programs of tests have on their path.

`pip install --target` puts them into the cache folder that the models of wheels lie in, once; each
folder goes by what is in it, so other versions get another one. NumPy, Pillow and onnx are those of
the tests themselves. Nothing is installed into the environment.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tests.wheels.fetch import Unreachable, _lock, cache_folder

PIP_SECONDS = 280

OPENCV = ("opencv-python-headless==5.0.0.93",)
#: By the program that needs them.
PACKAGES: dict[str, tuple[str, ...]] = {
    "rapidocr": (
        "rapidocr==3.10.0", *OPENCV, "pyclipper==1.4.0", "shapely==2.2.0", "six==1.17.0",
        "pyyaml==6.0.3", "tqdm==4.70.1", "omegaconf==2.4.0", "requests==2.34.2", "colorlog==6.12.0",
        "urllib3==2.8.0", "idna==3.20", "certifi==2026.10.18", "charset-normalizer==3.5.2",
    ),
    "ddddocr": ("ddddocr==1.6.1", *OPENCV),
    "magika": ("magika==1.0.3", "click==8.5.1"),
    "onnx-asr": ("onnx-asr==0.12.0",),
    "scikit-learn": (
        "scikit-learn==1.9.1", "scipy==1.17.1", "joblib==1.6.0", "threadpoolctl==3.8.0",
        "narwhals==2.29.0", "cloudpickle==3.1.2", "skl2onnx==1.20.0",
    ),
}  # fmt: skip

_unreachable: dict[str, Unreachable] = {}


def folder_of(program: str) -> Path:
    """The folder with a program's packages.

    Raises:
        Unreachable: They are neither there nor to be had; asked again, no second attempt.
    """
    if program in _unreachable:
        raise _unreachable[program]
    wanted = PACKAGES[program]
    place = f"{sysconfig.get_platform()} {sys.implementation.cache_tag} {' '.join(wanted)}"
    folder = cache_folder() / f"packages-{hashlib.sha256(place.encode()).hexdigest()[:24]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_suffix(".lock")):
            if not folder.is_dir():
                try:
                    _install(wanted, folder)
                except Unreachable as error:
                    _unreachable[program] = error
                    raise
    return folder


def _install(wanted: tuple[str, ...], folder: Path) -> None:
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--retries=1", f"--target={scratch}", *wanted]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING")]
            raise Unreachable(f"{wanted[0]}: pip: {lines[-1] if lines else 'no reason given'}")
        os.replace(scratch, folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable(f"{wanted[0]}: {error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
