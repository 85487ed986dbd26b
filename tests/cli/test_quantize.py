"""`sardonyx quantize`: what it prints, what it writes, how it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.cli.main import main
from sardonyx.loader import writer
from tests.quantization.nets import convolutions, pictures, sentences, transformer
from tests.support.session import model_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(convolutions(), tmp_path / "c.onnx")
    onnx.save(transformer(), tmp_path / "t.onnx")
    for name, feeds in (("pictures", pictures(3)), ("sentences", sentences(3))):
        (tmp_path / name).mkdir()
        for number, feed in enumerate(feeds):
            np.savez(tmp_path / name / f"{number}.npz", **feed)
    return tmp_path


def quantise(folder: Path, text: str) -> int:
    """Run the command; names of files are those of the folder."""
    words = [str(folder / w) if "/" in w or w.endswith(".onnx") else w for w in text.split()]
    try:
        return main(["quantize", *words])
    except SystemExit as end:
        return int(str(end.code))


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("c.onnx o.onnx --mode static --data pictures/", "QuantizeLinear"),
        ("c.onnx o.onnx --mode static --data pictures/ --format qoperator", "QLinearConv 3"),
        ("c.onnx o.onnx --mode static --per-channel --calibration percentile", "QuantizeLinear"),
        ("c.onnx o.onnx --mode static --activation-type uint16", "QuantizeLinear"),
        ("c.onnx o.onnx --exclude Conv_c1", "ConvInteger 2"),
        ("c.onnx o.onnx --nodes Conv_c1,Conv_c2", "ConvInteger 2"),
        ("t.onnx o.onnx --data sentences/ --op-types MatMul", "MatMulInteger 5"),
        ("t.onnx o.onnx --data sentences/ --mode int4 --block-size 16", "MatMulNBits 4"),
        ("t.onnx o.onnx --data sentences/ --mode int8-blocks", "MatMulNBits 4"),
        ("t.onnx o.onnx --data sentences/ --mode int4 --format qdq", "DequantizeLinear 4"),
        ("t.onnx o.onnx --data sentences/0.npz --external-data", "MatMulInteger 5"),
    ],
)
def test_modes(folder: Path, arguments: str, found: str, capsys: Any) -> None:
    assert quantise(folder, arguments) == 0
    printed = capsys.readouterr().out
    assert found in printed and "top-1 agreement" in printed and "cosine 0.9" in printed
    kind, feeds = ("c", pictures(1)) if arguments[0] == "c" else ("t", sentences(1))
    a, b = (
        sardonyx.InferenceSession(folder / name).run(None, feeds[0])[-1]
        for name in (f"{kind}.onnx", "o.onnx")
    )
    assert np.linalg.norm(a - b) < 0.2 * np.linalg.norm(a)


def test_samples_as_onnx_has_them(folder: Path, capsys: Any) -> None:
    for number, feed in enumerate(pictures(2)):
        case = folder / "data" / f"test_data_set_{number}"
        case.mkdir(parents=True)
        tensor = onnx.numpy_helper.from_array(feed["x"])  # without a name, as some have it
        (case / "input_0.pb").write_bytes(tensor.SerializeToString())
    assert quantise(folder, "c.onnx o.onnx --data data/") == 0
    assert "2 samples" in capsys.readouterr().out
    (folder / "arrays").mkdir()
    np.save(folder / "arrays" / "a.npy", pictures(1)[0]["x"])
    assert quantise(folder, "c.onnx o.onnx --data arrays/") == 0


def test_without_report(folder: Path, capsys: Any) -> None:
    assert quantise(folder, "t.onnx o.onnx --no-report") == 0
    printed = capsys.readouterr()
    assert "samples" not in printed.out and not printed.err


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ("c.onnx c.onnx", 2, "replace the model"),
        ("c.onnx pictures/", 2, "over a folder"),
        ("c.onnx none/o.onnx", 2, "cannot be written"),
        ("c.onnx o.onnx --data none/", 1, "no file or folder"),
        ("c.onnx o.onnx --data c.onnx", 2, "no .npz file of arrays"),
        ("t.onnx o.onnx --data pictures/", 2, "no array for the input 'ids'"),
        ("c.onnx o.onnx --exclude nobody", 2, "no node named 'nobody'"),
        ("c.onnx o.onnx --op-types MatMul", 2, "no operator 'MatMul'"),
        ("c.onnx o.onnx --samples 0", 2, "no whole number"),
        ("c.onnx o.onnx --dim N=x", 2, "not NAME=N"),
        ("c.onnx o.onnx --mode int5", 2, "invalid choice"),
        ("c.onnx o.onnx --mode dynamic --format qdq", 2, "no meaning with --mode dynamic"),
        ("c.onnx o.onnx --mode int4 --per-channel", 2, "no meaning with --mode int4"),
        ("c.onnx o.onnx --activation-type int8", 2, "no meaning with --mode dynamic"),
        ("c.onnx o.onnx --accuracy-level 4", 2, "no meaning with --mode dynamic"),
        ("c.onnx o.onnx --weight-type int4", 2, "8 bits"),
        ("t.onnx o.onnx --mode int4 --block-size 5", 2, "power of two"),
        ("c.onnx o.onnx --mode static --format qoperator --weight-type int16", 2, "QDQ"),
        ("c.onnx o.onnx --data ./objects.npz", 2, "no .npz file of arrays"),
        ("none.onnx o.onnx", 1, "none.onnx"),
        ("pictures/0.npz o.onnx", 1, "InvalidProtobuf"),
    ],
)
def test_what_is_wrong(folder: Path, arguments: str, status: int, text: str, capsys: Any) -> None:
    np.savez(folder / "objects.npz", x=np.array([{}], object))
    before = sorted(folder.iterdir())
    assert quantise(folder, arguments) == status
    printed = capsys.readouterr().err.splitlines()
    assert text in printed[-1] and "Traceback" not in "".join(printed)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("mode", ["dynamic", "static", "int4"])
def test_sizes_that_nobody_gave(folder: Path, mode: str, capsys: Any) -> None:
    """Where the model does not run with them, that is found before a file is written."""
    text = "g (float[1, 1, T] x) => (float[1, 1, U] y) { y = Conv (x, w) }"
    onnx.save(model_of(text, {"w": np.ones((1, 1, 4), np.float32)}), folder / "w.onnx")
    before = sorted(folder.iterdir())
    assert quantise(folder, f"w.onnx o.onnx --mode {mode}") == 1
    assert "Nobody gave T (1). Try --dim T=N" in capsys.readouterr().err
    assert quantise(folder, f"w.onnx o.onnx --mode {mode} --dim T=2") != 0
    assert sorted(folder.iterdir()) == before
    assert quantise(folder, f"w.onnx o.onnx --mode {mode} --dim T=8") == 0


def test_interrupted_while_writing(folder: Path, monkeypatch: Any, capsys: Any) -> None:
    """An older file of that name stays, and nothing else does."""
    (folder / "o.onnx").write_bytes(b"older")
    before = sorted(folder.iterdir())

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer._Writer, "model", interrupt)
    options = "c.onnx o.onnx --no-report --external-data"
    assert quantise(folder, options) == 130
    assert "interrupted" in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before
    assert (folder / "o.onnx").read_bytes() == b"older"
