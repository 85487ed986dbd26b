"""What all commands have in common: numbers, sizes, providers, exit statuses, files that are none.

Bad arguments end with status 2, failures with 1, in a line each.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sardonyx.base.errors import InvalidArgument
from sardonyx.cli.arguments import numbers_of, provider, real, sizes_of, whole
from sardonyx.cli.main import COMMANDS, main
from tests.support.session import model_of

WHOLE = [
    ("0", 0), ("7", 7), ("+3", 3), ("10", 10), ("11", None), ("-1", None), ("²", None),
    ("٣", None), ("1_0", None), ("1.0", None), ("", None), ("nan", None), (" 1", None),
    ("9" * 5000, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "number"), WHOLE, ids=[t[:8] for t, _ in WHOLE])
def test_whole_numbers(text: str, number: int | None) -> None:
    if number is not None:
        assert whole(0, 10)(text) == number
        assert numbers_of(f"1, {text}", "--x", 0, 10) == (1, number)
        return
    with pytest.raises(argparse.ArgumentTypeError, match="no whole number from 0 to 10"):
        whole(0, 10)(text)
    if text.strip() == text != "":
        with pytest.raises(InvalidArgument, match="no list of numbers"):
            numbers_of(text, "--x", 0, 10)


REAL = [
    ("1", 1.0), ("0", 0.0), ("1e-3", 1e-3), ("nan", None), ("inf", None), ("-inf", None),
    ("1e999", None), ("-1", None), ("²", None), ("x", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "number"), REAL)
def test_real_numbers(text: str, number: float | None) -> None:
    if number is not None:
        assert real()(text) == number
        return
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number that is 0 or more"):
        real()(text)


def test_bounds_of_real_numbers() -> None:
    assert real(0, 1)("1") == 1
    for text, kind in (("0", real(above=True)), ("1.5", real(0, 1))):
        with pytest.raises(argparse.ArgumentTypeError):
            kind(text)


#: Texts, and the sizes that they say, or what is wrong.
SIZES: list[tuple[list[str], Any]] = [
    (["N=3"], {"N": 3}),
    (["N:3", "x.2=64"], {"N": 3, "x.2": 64}),
    (["in:0.1=4", "a=b=5"], {"in:0.1": 4, "a=b": 5}),
    (["N=3", "N=3"], {"N": 3}),
    (["N=3", "N=4"], "Two sizes of 'N': 3 and 4"),
    (["N"], "not NAME=N"),
    (["=3"], "not NAME=N"),
    (["N=0"], "not NAME=N"),
    (["N=-1"], "not NAME=N"),
    (["N=²"], "not NAME=N"),
    (["N=" + "9" * 5000], "not NAME=N"),
    (["N=9223372036854775808"], "so large"),
]


@pytest.mark.parametrize(("texts", "found"), SIZES, ids=lambda a: str(a)[:30])
def test_sizes(texts: list[str], found: Any) -> None:
    if isinstance(found, dict):
        assert sizes_of(texts) == found
        return
    with pytest.raises(InvalidArgument, match=found):
        sizes_of(texts)


@pytest.mark.parametrize(
    ("text", "name"),
    [("cpu", "cpu"), ("CPU", "cpu"), ("CPUExecutionProvider", "cpu"), ("cuda", "cuda"),
     ("CUDAExecutionProvider", "cuda"), ("cdua", None), ("TensorrtExecutionProvider", None)],
)  # fmt: skip
def test_providers(text: str, name: str | None) -> None:
    if name:
        assert provider(text) == name
        return
    with pytest.raises(argparse.ArgumentTypeError, match="no provider"):
        provider(text)


# -- all commands ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    built = model_of(
        "g (float[N, 8] x, float[N, 8] z) => (float[N, 4] y) {a = Add(x, z) y = MatMul(a, w)}",
        {"w": np.ones((8, 4), np.float32)},
    )
    onnx.save(built, "m.onnx")
    Path("empty.onnx").write_bytes(b"")
    Path("text.onnx").write_text("This is no model, but a text.\n")
    Path("archive.onnx").write_bytes(b"PK\x03\x04" + bytes(60))
    Path("noise.onnx").write_bytes(bytes(range(255, 0, -1)))
    Path("bundle.sardonyx").write_bytes(b"sdxbundl" + bytes(100))
    Path("folder").mkdir()
    return tmp_path


def _run(command: str) -> int:
    try:
        return main(command.split())
    except SystemExit as ended:
        return int(ended.code or 0)


#: Each command that reads a model.
READERS = {
    "run": "run FILE",
    "show": "show FILE",
    "compare": "compare FILE --against sardonyx",
    "perf": "perf FILE -r 1",
    "explain": "explain FILE",
    "optimize": "optimize FILE out.onnx",
    "bundle": "bundle FILE out.sardonyx",
    "archive": "archive FILE --output out",
    "strip": "tools strip-weights FILE out.onnx",
    "shapes": "tools fix-shapes FILE out.onnx --dim N=1",
    "tune": "tune FILE",
    "quantize": "quantize FILE out.onnx",
    "view": "view FILE",
}
#: Files, the status that they end with, and what is said of them.
FILES = [
    ("missing.onnx", 1, "missing.onnx"),
    ("empty.onnx", 1, "It is empty"),
    ("text.onnx", 1, "It is a text: give an ONNX model"),
    ("archive.onnx", 1, "zip archive"),
    ("noise.onnx", 1, "Give an ONNX model"),
    ("folder", 2, "not a regular file"),
]


@pytest.mark.parametrize(("file", "status", "text"), FILES, ids=[f for f, _, _ in FILES])
@pytest.mark.parametrize("command", READERS.values(), ids=list(READERS))
def test_files_that_are_no_models(
    command: str, file: str, status: int, text: str, folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("sardonyx.tools.view.document.library_text", lambda: "")
    before = sorted(folder.rglob("*"))
    found = _run(command.replace("FILE", file))
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert file in printed
    assert text in printed or (file == "folder" and "folder" in printed)
    assert found == status
    assert sorted(folder.rglob("*")) == before


#: What sessions take themselves is left out: run, perf.
NO_BUNDLES = [c for n, c in READERS.items() if n not in ("run", "perf")]


@pytest.mark.parametrize("command", [*NO_BUNDLES, "perf FILE -r 1 --against onnxruntime"])
def test_bundles_where_none_are_taken(
    command: str, folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("sardonyx.tools.view.document.library_text", lambda: "")
    assert _run("bundle m.onnx bundle.sardonyx") == 0
    capsys.readouterr()
    assert _run(command.replace("FILE", "bundle.sardonyx")) in (1, 2)
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "It is a bundle" in printed
    assert "Give the ONNX file that it was made of" in printed


#: Arguments that are bad in every command that has them.
BAD = [
    ("run m.onnx", "--dim M=2 --seed -1 --seed ² --repeat 0 --threads -1 --threads 99999999 -e x"),
    ("compare m.onnx --against sardonyx", "--dim N --tolerance nan --tolerance -1 -e x --dim M=2"),
    ("perf m.onnx", "--dim M=2 -t nan -t inf -t -1 -r 0 -c 5000 -x 99999999 -e x -S ² --rounds 0 "
     "--tolerance nan --warmup 0 -y 99999999 -y 2 --opt_data w --opt_weight_min_size 5 --rounds 3"),
    ("explain m.onnx", "--dim M=2 --threads -1 -e x --dim N=0"),
    ("show m.onnx", "--after nonsense --stage nonsense --target nonsense"),
    ("archive m.onnx --output out", "--target nonsense --target sm_90"),
    ("view m.onnx", "--runs 0 --runs ² -e x --dim N"),
    ("tune m.onnx", "--budget nan --budget -1 --threads 99999999 --threads ² --percentile nan "
     "--tolerance nan --tolerance inf --seed -1 -e x --warmup -1 --max-batch 0 --dim N=1=x"),
    ("optimize m.onnx out.onnx", "--num_heads -1 --external-data -1 --dim M=2 --dim N=x"),
    ("quantize m.onnx out.onnx", "--samples 0 --samples ² --seed -1 --block-size 0 --threads -1 "
     "--accuracy-level 9 --dim N=x"),
    ("convert m.onnx out.onnx", "--tolerance nan --tolerance -1 --opset 0 --seed -1 "
     "--input x=999999999999x999999999999 --input x=²"),
    ("bundle m.onnx out.sardonyx", "--dim M=2 --dim N"),
    ("tools fix-shapes m.onnx out.onnx", "--dim M=2 --dim N --dim_value 0"),
    ("tools split-external m.onnx out.onnx", "--threshold -1 --threshold ²"),
    ("tools update-opset m.onnx out.onnx", "--opset -1 --opset 1"),
]  # fmt: skip


def _pairs(text: str) -> list[str]:
    words = text.split()
    return [" ".join(pair) for pair in zip(words[::2], words[1::2], strict=True)]


CASES = [(command, flag) for command, flags in BAD for flag in _pairs(flags)]


@pytest.mark.parametrize(("command", "flag"), CASES, ids=[f"{c} {f}"[:60] for c, f in CASES])
def test_bad_arguments(
    command: str, flag: str, folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("sardonyx.tools.view.document.library_text", lambda: "")
    before = sorted(folder.rglob("*"))
    assert _run(f"{command} {flag}") == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert printed.startswith(f"sardonyx {command.split()[0]}")
    assert sorted(folder.rglob("*")) == before


def test_all_commands_are_there() -> None:
    tried = {command.split()[0] for command, _ in BAD}
    assert tried | {"demo", "doctor", "knobs", "operators"} == set(COMMANDS)


#: Commands that run a model take its sizes, and the provider, in the same words.
RUNNING = ["run m.onnx", "explain m.onnx", "perf m.onnx -r 1", "view m.onnx -o v.html",
           "compare m.onnx --against sardonyx"]  # fmt: skip


@pytest.mark.parametrize("command", RUNNING)
def test_sizes_and_providers_of_runs(
    command: str, folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("sardonyx.tools.view.document.library_text", lambda: "")
    assert _run(f"{command} -f x.0=3 -e CPUExecutionProvider") == 0
    printed = capsys.readouterr().out
    assert "sizes chosen" not in printed.lower()
    assert _run(f"{command} --free-dim N=3 --provider cpu") == 0
    capsys.readouterr()
    assert _run(command) == 0
    printed = capsys.readouterr().out
    where = Path("v.html").read_text() if "html" in command else printed
    assert "izes chosen: N=1" in where
    assert _run(f"{command} --dim x.0=2 --dim z.0=3") in (1, 2)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", RUNNING)
def test_a_provider_that_is_not_there(
    command: str, folder: Path, capsys: Any, monkeypatch: Any
) -> None:
    """Nothing else stands in for it."""
    monkeypatch.setattr("sardonyx.tools.view.document.library_text", lambda: "")
    monkeypatch.setattr("sardonyx.api.providers.cuda_is_missing", lambda *_: "There is no GPU")
    assert _run(f"{command} -e cuda") == 1
    printed = capsys.readouterr().err
    assert "CUDAExecutionProvider" in printed and "not available" in printed


#: Commands that write a model for sizes that are given; what its first input has then.
WRITING = ["bundle FILE out.sardonyx", "optimize FILE out.onnx", "tools fix-shapes FILE out.onnx"]


@pytest.mark.parametrize("command", WRITING)
def test_sizes_of_written_models(command: str, folder: Path, capsys: Any) -> None:
    import sardonyx

    text = "g (float[N, ?] x) => (float[N, M] y) { y = Relu(x) }"
    onnx.save(model_of(text), "free.onnx")
    assert _run(command.replace("FILE", "free.onnx") + " --dim x.1=5 --dim x.0=3") == 0
    path = command.split()[-1]
    assert sardonyx.InferenceSession(path).get_inputs()[0].shape == [3, 5]
    capsys.readouterr()
    assert _run(command.replace("FILE", "free.onnx") + " --dim x.0=3 --dim N=4") == 2
    assert "two sizes: 3 and 4" in capsys.readouterr().err


def test_memory_that_is_not_there(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError("Unable to allocate 8 EiB")

    monkeypatch.setattr("sardonyx.tools.convert.convert", fail)
    assert _run("convert x.pt2 out.onnx") == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "not enough memory" in error and "8 EiB" in error


def test_operators_that_are_not_there_are_told(folder: Path, capsys: Any) -> None:
    flags = "--float16 --op_block_list MatMul Nope"
    assert _run(f"optimize m.onnx out.onnx {flags}") == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "no operator 'Nope'" in lines[0]


def test_calibration_of_a_model_without_inputs(folder: Path, capsys: Any) -> None:
    onnx.save(model_of("g () => (float[1] y) { y = Constant <value_floats = [1.0]> () }"), "c.onnx")
    assert _run("quantize c.onnx out.onnx --mode static") == 2
    assert "no inputs" in capsys.readouterr().err
