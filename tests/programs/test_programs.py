"""Programs written for onnxruntime, unedited, each in a process of its own.

Packages come from PyPI, see `packages`. Answers are those that onnxruntime 1.31.1 gave on the same
pictures, sounds and texts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.programs.packages import folder_of
from tests.support.tolerances import assert_near
from tests.wheels import prepare, signals
from tests.wheels.fetch import Unreachable, fetch
from tests.wheels.models import SILERO_VAD

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "scripts"


def _answer(program: str, script: str, *arguments: object) -> Any:
    """What a script prints last, with sardonyx in onnxruntime's place."""
    try:
        folder = folder_of(program)
    except Unreachable as reason:
        pytest.skip(f"packages can be neither downloaded nor found in the cache: {reason}")
    path = os.pathsep.join([str(ROOT), str(folder)])
    command = [sys.executable, "-m", "sardonyx.as_onnxruntime", str(SCRIPTS / script)]
    command += map(str, arguments)
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_rapidocr() -> None:
    texts, scores = _answer("rapidocr", "read_text.py", prepare.DATA / "lines.png")
    assert texts == [text for text, _ in prepare.LINES]
    wanted = [0.99981, 0.99731, 0.99614, 0.99812, 0.99956, 0.99935]
    assert_near(scores, wanted, "float: probabilities of programs")


def test_ddddocr(tmp_path: Path) -> None:
    from PIL import Image

    picture = tmp_path / "word.png"
    Image.fromarray(np.ascontiguousarray(prepare.line(0))).save(picture)
    word, boxes = _answer("ddddocr", "read_captcha.py", picture, prepare.DATA / "puzzle.png")
    assert word == "sardonyx"
    wanted = [[49, 58, 90, 104], [61, 282, 96, 323], [127, 154, 179, 206],
              [200, 304, 240, 348], [224, 52, 258, 93], [272, 198, 309, 241]]  # fmt: skip
    np.testing.assert_allclose(sorted(boxes), wanted, atol=1)


def test_magika(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("name,size\n" + "a,1\nb,22\n" * 50)
    (tmp_path / "empty").touch()
    found = _answer("magika", "tell_kinds.py", tmp_path / "table.csv", tmp_path / "empty")
    kinds = ["python", "html", "pdf", "json", "csv", "csv", "empty"]
    assert [label for label, _ in found] == kinds
    # As in double precision; onnxruntime's are up to 2e-4 from these.
    scores = [0.999241, 0.954558, 0.950593, 0.952592]
    assert_near([score for _, score in found[:4]], scores, "float: programs")


def test_silero_vad(tmp_path: Path) -> None:
    try:
        model = fetch(SILERO_VAD, "silero_vad/data/silero_vad.onnx")
    except Unreachable as reason:
        pytest.skip(f"the wheel can be neither downloaded nor found in the cache: {reason}")
    sound = np.ascontiguousarray(signals.speech(16_000 * 6, 16_000))
    np.save(tmp_path / "sound.npy", sound)
    alone, together = _answer("onnx-asr", "find_speech.py", model.parent, tmp_path / "sound.npy")
    assert alone == [[15392, 41952], [55840, 81888]]
    assert together == [alone, alone[:1]]


def test_a_pipeline_of_scikit_learn_through_the_backend() -> None:
    differences, refused, supports = _answer("scikit-learn", "classify.py")
    assert max(differences) < 1e-5
    assert refused == "InvalidArgument" and supports
