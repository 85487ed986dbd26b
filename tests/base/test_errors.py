"""Which classes exceptions are of: Python's built-ins, and onnxruntime's where it stands in."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from sardonyx.base import errors

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("kind", "built_in"),
    [
        (errors.Fail, RuntimeError),
        (errors.InvalidArgument, ValueError),
        (errors.InvalidGraph, ValueError),
        (errors.MissingFeed, ValueError),
        (errors.NoSuchFile, FileNotFoundError),
        (errors.NotFound, KeyError),
        (errors.NotImplemented, NotImplementedError),
        (errors.OutOfMemory, MemoryError),
        (errors.WrongType, TypeError),
    ],
)
def test_each_is_a_built_in(kind: type[errors.SardonyxError], built_in: type[Exception]) -> None:
    for error in (kind("text"), pickle.loads(pickle.dumps(kind("text")))):
        assert isinstance(error, kind) and isinstance(error, built_in)
        assert (str(error), type(error).__name__) == ("text", kind.__name__)


def test_one_more_class() -> None:
    error = errors.InvalidGraph("text")
    errors.also(error, RuntimeError)
    assert isinstance(error, RuntimeError) and isinstance(error, errors.InvalidGraph)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (errors.InvalidGraph, "text")


_PROGRAM = """
import sys
import numpy as np
import sardonyx
from tests.support.session import model_of
if "stand-in" in sys.argv:
    sardonyx.install_as_onnxruntime()
    import onnxruntime as package
else:
    package = sardonyx
from sardonyx.base import errors

BUILT_IN = (ValueError, RuntimeError, TypeError, OSError, KeyError, NotImplementedError)
data = model_of("g (float[2] x) => (float[2] y) { y = Neg(x) }").SerializeToString()
unknown = model_of("g (float[2] x) => (float[2] y) { y = Nonsense(x) }").SerializeToString()
session = package.InferenceSession(data)
x = np.ones(2, np.float32)
for name, call in {
    "garbage": lambda: package.InferenceSession(b"garbage" * 9),
    "no file": lambda: package.InferenceSession("/nowhere/model.onnx"),
    "unknown": lambda: package.InferenceSession(unknown),
    "type": lambda: session.run(None, {"x": x.astype(np.float64)}),
    "size": lambda: session.run(None, {"x": np.ones(3, np.float32)}),
    "name": lambda: session.run(None, {"x": x, "z": x}),
    "missing": lambda: session.run(None, {}),
    "no array": lambda: session.run(None, {"x": object()}),
    "no model": lambda: package.InferenceSession(3),
    "binding": lambda: session.io_binding().bind_cpu_input("z", x),
    "bound": lambda: session.run_with_iobinding(session.io_binding()),
    "value": lambda: package.OrtValue.ortvalue_from_numpy(x).update_inplace(np.ones(3, "f4")),
    "entry": lambda: package.SessionOptions().get_session_config_entry("z"),
}.items():
    try:
        call()
    except Exception as error:
        own = next(k for k in (*errors.SardonyxError.__subclasses__(),) if isinstance(error, k))
        found = [k.__name__ for k in BUILT_IN if isinstance(error, k)]
        print(name, own.__name__, *found, sep=",")
"""

#: Which built-ins onnxruntime's own exception is of, in the same call.
_THERE = {
    "garbage": "InvalidProtobuf",
    "no file": "NoSuchFile",
    "unknown": "InvalidGraph",
    "type": "InvalidArgument",
    "size": "InvalidArgument",
    "name": "InvalidArgument",
    "missing": "InvalidArgument,ValueError",
    "no array": "InvalidArgument,RuntimeError",
    "no model": "InvalidArgument,TypeError",
    "binding": "InvalidArgument,RuntimeError",
    "bound": "InvalidArgument,RuntimeError",
    "value": "InvalidArgument,RuntimeError",
    "entry": "Fail,RuntimeError",
}
_HERE = {
    "garbage": "InvalidProtobuf,ValueError",
    "no file": "NoSuchFile,OSError",
    "unknown": "InvalidGraph,ValueError",
    "no model": "InvalidArgument,ValueError,RuntimeError,TypeError",
    "entry": "Fail,RuntimeError",
}


@pytest.mark.parametrize("face", ["stand-in", "sardonyx"])
def test_programs_tell_built_ins_apart(face: str) -> None:
    """Such as those that raise a ValueError again, and deal with the engine's own exceptions."""
    command = [sys.executable, "-c", _PROGRAM, face]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = dict(line.split(",", 1) for line in done.stdout.splitlines())
    usual = "InvalidArgument,ValueError,RuntimeError"
    assert found == (_THERE if face == "stand-in" else dict.fromkeys(_THERE, usual) | _HERE)
