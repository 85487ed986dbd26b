"""Pipes, devices, sockets and folders where a file is named: an error of its own, at once."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import sardonyx
from sardonyx import quantization
from sardonyx.api import settings
from sardonyx.base.errors import InvalidArgument, NoSuchFile, SardonyxError
from sardonyx.base.files import check_target, open_file, read_file
from sardonyx.cli.main import main
from sardonyx.loader.adapter_file import read_adapter
from sardonyx.profiling.chrome import write
from sardonyx.quantization.samples import read_samples
from sardonyx.store.bundle import Bundle, is_bundle
from sardonyx.tools.convert.detect import open_source
from sardonyx.tools.view.reading import read_events
from tests.support.session import model_of

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
_MOST_SECONDS = 20


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """What waits for a pipe's other end is interrupted."""

    def end(*_: object) -> None:
        raise TimeoutError("it waits for the other end")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(_MOST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sardonyx.tools.view.document.library_text", lambda: "")
    onnx.save(model_of("g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }", {}), "m.onnx")
    return tmp_path


def _pipe(path: str) -> None:
    os.mkfifo(path)


def _socket(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path)


def _device(path: str) -> None:
    os.symlink("/dev/zero", path)


def _folder(path: str) -> None:
    os.mkdir(path)


KINDS = {"a pipe": _pipe, "a socket": _socket, "a device": _device, "a folder": _folder}


def _of_settings(path: str) -> Any:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.settings_file", path)
    return sardonyx.InferenceSession("m.onnx", options)


def _external(path: str) -> Any:
    model = model_of(
        "g (float[2, 4] x) => (float[2, 4] y) { y = Add(x, w) }", {"w": np.ones(4, np.float32)}
    )
    (tensor,) = model.graph.initializer
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", path
    Path("e.onnx").write_bytes(model.SerializeToString())
    return sardonyx.InferenceSession("e.onnx")


def _read_config(path: str) -> Any:
    return sardonyx.InferenceSession(path, read_config_from_model=1)


def _sample(path: str) -> Any:
    os.mkdir("samples")
    os.rename(path, "samples/input_0.pb" if path.endswith(".pb") else f"samples/{path}")
    return read_samples(Path("samples"), ["x"])


#: What opens a file that somebody names: name of the file, what is called with it.
PLACES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "model": ("s.onnx", sardonyx.InferenceSession),
    "model with options": ("s.onnx", _read_config),
    "load": ("s.onnx", sardonyx.load),
    "bundle": ("s.sardonyx", sardonyx.InferenceSession),
    "Bundle": ("s.sardonyx", Bundle),
    "compiler": ("s.onnx", lambda p: sardonyx.ModelCompiler(sardonyx.SessionOptions(), p)),
    "external data": ("s.bin", _external),
    "settings": ("s.json", _of_settings),
    "digest": ("s.onnx", settings.model_digest),
    "adapter": ("s.onnx_adapter", read_adapter),
    "LoRA": ("s.onnx_adapter", lambda p: sardonyx.LoraAdapter().Load(p)),
    "ranges": ("s.json", quantization.load_tensors_data),
    "samples": ("s.npz", lambda p: _sample(p)),
    "sample tensor": ("s.pb", lambda p: _sample(p)),
    "profile": ("s.json", lambda p: list(read_events(p))),
    "tuning": ("s.onnx", lambda p: _tune(p)),
    "perf": ("s.onnx", lambda p: _perf(p)),
    "booster": ("s.txt", open_source),
    "pickle": ("s.pkl", lambda p: open_source(p, trust_pickle=True)),
    "torch": ("s.pt2", open_source),
    "quantised": ("s.onnx", lambda p: quantization.quantize_dynamic(p, "q.onnx")),
}


def _tune(path: str) -> Any:
    from sardonyx.tools.tune import tune

    return tune(path)


def _perf(path: str) -> Any:
    from sardonyx.tools.perf import measure

    return measure(path)


#: What may be a folder: of samples, or a model of TensorFlow.
FOLDERS = ("samples", "sample tensor", "booster", "pickle", "torch")


@pytest.mark.parametrize(
    ("place", "kind"),
    [(p, k) for p in PLACES for k in KINDS if k != "a folder" or p not in FOLDERS],
)
def test_every_place_that_opens_a_file(place: str, kind: str, folder: Path) -> None:
    name, call = PLACES[place]
    KINDS[kind](name)
    leads_out = kind == "a device" and place == "external data"
    said = "a link leads out" if leads_out else rf"not a regular file.*got {kind}"
    with pytest.raises(SardonyxError, match=said):
        call(name)


COMMANDS = [
    "run FILE", "run m.onnx --inputs FILE", "show FILE", "compare FILE --against sardonyx",
    "compare m.onnx --against sardonyx --inputs FILE", "perf FILE -r 1",
    "perf m.onnx -r 1 --inputs FILE", "explain FILE", "optimize FILE out.onnx",
    "bundle FILE out.sardonyx", "tools strip-weights FILE out.onnx",
    "tools fix-shapes FILE out.onnx --dim N=1", "tune FILE", "quantize FILE out.onnx", "view FILE",
    "quantize m.onnx out.onnx --data FILE", "tune m.onnx --inputs FILE",
    "tune m.onnx --settings FILE", "view m.onnx FILE",
]  # fmt: skip


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "a folder"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command(command: str, kind: str, folder: Path, capsys: Any) -> None:
    KINDS[kind]("special")
    assert main([w.replace("FILE", "special") for w in command.split()]) in (1, 2)
    said = capsys.readouterr().err
    assert "special" in said and kind in said and said.count("\n") == 1


#: What writes a file: nothing is put in place of what is no file.
WRITERS = [
    "optimize m.onnx FILE", "bundle m.onnx FILE", "tools strip-weights m.onnx FILE",
    "quantize m.onnx FILE", "view m.onnx --output FILE", "perf m.onnx -r 1 FILE",
]  # fmt: skip


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "a folder"])
@pytest.mark.parametrize("command", WRITERS)
def test_nothing_is_written_over_it(command: str, kind: str, folder: Path, capsys: Any) -> None:
    KINDS[kind]("special")
    before = os.lstat("special")
    assert main([w.replace("FILE", "special") for w in command.split()]) in (1, 2)
    assert kind in capsys.readouterr().err
    assert os.lstat("special").st_ino == before.st_ino


def test_profiles_and_targets(folder: Path) -> None:
    _pipe("pipe")
    with pytest.raises(InvalidArgument, match="over a pipe"):
        write(None, "pipe")  # type: ignore[arg-type] # looked at before the profile is
    check_target("m.onnx")
    check_target("nothing")


def test_what_is_there_is_asked_again_of_the_open_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file takes the name between the question and the opening."""
    _pipe("pipe")
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path: stat("m.onnx"))
    with pytest.raises(InvalidArgument, match="got a pipe"):
        open_file("pipe")


def test_the_name_of_nothing_and_of_no_path(folder: Path) -> None:
    for path in ("nothing", "m.onnx/inside"):
        with pytest.raises(NoSuchFile):
            open_file(path)
    for path in ("a\0b", 0, None, 3.5):
        with pytest.raises(InvalidArgument, match="not a path"):
            open_file(path)  # type: ignore[arg-type]
    assert not is_bundle("nothing")
    with pytest.raises(InvalidArgument, match="too long.*at most 3 bytes"):
        read_file("m.onnx", 3)


@pytest.mark.skipif(not os.path.exists("/dev/stdin"), reason="standard input has no name")
def test_standard_input_by_its_name(folder: Path) -> None:
    """A file as standard input is one; a pipe that is open already is read where once is enough."""
    run = [sys.executable, "-m", "sardonyx", "show", "/dev/stdin"]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    with open("m.onnx", "rb") as file:
        done = subprocess.run(run, stdin=file, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "Relu" in done.stdout
    code = (
        "import sys; from sardonyx.base.bounded_json import read_json as r; print(r(sys.argv[1]))"
    )
    for name in ("/dev/stdin", "/dev/fd/0"):
        read = [sys.executable, "-c", code, name]
        done = subprocess.run(
            read, input='{"a": 1}', capture_output=True, text=True, env=environment
        )
        assert done.stdout == "{'a': 1}\n"


#: Where files are opened otherwise: of the system, our own, or in a folder of ours.
OWN = {
    "base/files.py", "cli/main.py", "workers/child.py", "profiling/chrome.py", "store/cache.py",
    "compiler/cached_engines.py", "link/executable_memory.py", "store/entries.py",
    "store/bundle.py", "store/folders.py",
    "tools/convert/table_source.py", "tools/tune/journal.py", "tools/tune/tuner.py",
    "tools/tune/worker.py", "tools/view/document.py", "tools/tune/inputs.py",
}  # fmt: skip
_OPENING = {"open", "os.open", "np.load", "np.fromfile", "np.memmap"}
_METHODS = {"read_bytes", "read_text", "write_bytes", "write_text"}


def test_files_are_opened_by_one_function() -> None:
    package = Path(__file__).resolve().parents[2] / "sardonyx"
    found = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if name in _OPENING or name.rpartition(".")[2] in _METHODS:
                found.add(path.relative_to(package).as_posix())
    through = {"loader/adapter_file.py", "loader/arrays.py"}
    assert found - OWN == through, "these read what `open_file` opened"
