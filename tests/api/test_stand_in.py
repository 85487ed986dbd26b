"""A program that imports onnxruntime, with sardonyx in its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import importlib.metadata, importlib.util, sys
assert importlib.util.find_spec("onnxruntime").name == "onnxruntime"
assert importlib.util.find_spec("onnxruntime.training") is None
assert importlib.metadata.version("onnxruntime") == "1.31.1"
assert importlib.metadata.distribution("onnxruntime").metadata["Name"] == "onnxruntime"
assert importlib.metadata.version("numpy")

import onnxruntime
import onnxruntime.backend as backend
assert backend.supports_device("CPU")
from onnxruntime import *
import onnxruntime.capi.onnxruntime_pybind11_state as state
from onnxruntime import GraphOptimizationLevel, InferenceSession as Session
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi._pybind_state import Fail
from onnxruntime.capi.onnxruntime_inference_collection import IOBinding, OrtValue
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, RuntimeException

assert onnxruntime.__version__ == "1.31.1" and onnxruntime.__file__
assert InferenceSession is Session is C.InferenceSession
assert Session.__module__ == "sardonyx.api.session"
assert onnxruntime.capi.onnxruntime_pybind11_state.Fail is state.Fail is Fail
try:
    Session("missing.onnx")
except state.NoSuchFile as error:
    assert "missing.onnx" in str(error)
assert onnxruntime.ModelCompiler is state.ModelCompiler
from onnxruntime.quantization import CalibrationDataReader, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
assert quantize_static.__module__ == "sardonyx.quantization.quantize"
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.io_binding_helper import TypeHelper
from onnxruntime.transformers.optimizer import optimize_model
assert FusionOptions.__module__ == "sardonyx.tools.optimizer.options"
from onnxruntime.backend.backend import OnnxRuntimeBackend
from onnxruntime.datasets import get_example
assert OnnxRuntimeBackend is backend.OnnxRuntimeBackend and get_example("sigmoid.onnx")
try:
    import onnxruntime.tools
except ModuleNotFoundError as error:
    assert error.name == "onnxruntime.tools"
assert not [m for m in sys.modules.values() if "site-packages/onnxruntime" in str(vars(m).get("__file__"))]
print("done", *sys.argv[1:])
"""  # noqa: E501


def run(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return [done.stdout.strip(), done.stderr.strip()]


def test_a_script(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    assert run("-m", "sardonyx.as_onnxruntime", str(script), "x") == ["done x", ""]


def test_from_a_program_that_has_onnxruntime_already() -> None:
    code = (
        "try:\n import onnxruntime\nexcept ImportError: pass\n"
        "import sardonyx\nsardonyx.install_as_onnxruntime()\nsardonyx.install_as_onnxruntime()\n"
        + PROGRAM
    )
    assert run("-c", code) == ["done", ""]


def test_usage() -> None:
    command = [sys.executable, "-m", "sardonyx.as_onnxruntime"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and ended.stderr.startswith("usage")


_SPAWNING = """
import multiprocessing, helper

def which(_):
    import onnxruntime
    return onnxruntime.InferenceSession.__module__

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(helper.WORD, *pool.map(which, [0]))
"""


def test_a_program_finds_its_neighbours_and_spawned_processes_have_sardonyx(tmp_path) -> None:
    (tmp_path / "program.py").write_text(_SPAWNING)
    (tmp_path / "helper.py").write_text("WORD = 'found'")
    output, errors = run("-m", "sardonyx.as_onnxruntime", str(tmp_path / "program.py"))
    assert (output.strip(), errors) == ("found sardonyx.api.session", "")


def test_a_program_that_is_not_there() -> None:
    output, errors = run("-m", "sardonyx.as_onnxruntime", "nowhere.py")
    assert output == ""
    assert errors.strip() == "sardonyx: there is no file 'nowhere.py'"
