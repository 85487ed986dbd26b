"""The subcommands, on a small model."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sardonyx.cli.compare import relative_error
from sardonyx.cli.main import main
from sardonyx.ops.core.refused import REASONS
from tests.api import models
from tests.engine import networks
from tests.support.session import model_of


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("models") / "transformer.onnx"
    onnx.save(networks.transformer(), path)
    return str(path)


CASES = [
    (
        ["run", "--dim", "S=5", "--repeat", "2", "--timings", "--explain", "--verbose"],
        ["float32[1, 5, 60]"],
    ),
    (["show", "--stage", "graph"], ["LayerNormalization"]),
    (["show", "--stage", "graph", "--after", "load"], ["Softmax"]),
    (["show", "--stage", "tensors"], ["exp(", "# Softmax_", "return %"]),
    (["show", "--stage", "groups"], ["attention %", "contraction %", "; sum over 60"]),
    (["show", "--stage", "layout"], ["%ids: int64[N,S] input, axes 0 1"]),
    (["show", "--stage", "choices"], ["product_1 in", "shared by 3 groups"]),
    (["show", "--stage", "choices", "--target", "neon"], ["lanes 4", "attention_"]),
    (["show", "--stage", "plan"], ["every run", "attention_"]),
    (["show", "--stage", "kernels"], ["parallel", "kernel attention_"]),
    (["show", "--stage", "llvm"], ["define"]),
    (["show", "--stage", "ptx", "--target", "sm_90"], [".target sm_90", "attention_"]),
    (["show", "--stage", "asm"], [".text"]),
    (["compare", "--against", "sardonyx", "--dim", "S=4"], ["relative error 0"]),
]


@pytest.mark.parametrize(("arguments", "texts"), CASES, ids=[" ".join(a) for a, _ in CASES])
def test_prints(arguments: list[str], texts: list[str], model: str, capsys: Any) -> None:
    command, *rest = arguments
    assert main([command, model, *rest]) == 0
    printed = capsys.readouterr().out
    for text in texts:
        assert text in printed


#: Part of a name, exit status, text on stdout, on stderr.
NAMES = [
    ("LeakyRelu", 0, "ai.onnx.LeakyRelu  |  1, 6, 16", ""),
    ("nothing", 1, "", "No operator has this in its name. Got nothing."),
]


@pytest.mark.parametrize(("part", "status", "out", "error"), NAMES, ids=[n[0] for n in NAMES])
def test_operators_of_a_name(part: str, status: int, out: str, error: str, capsys: Any) -> None:
    assert main(["operators", "--only", part]) == status
    printed = capsys.readouterr()
    assert out in printed.out and error in printed.err
    assert bool(printed.out) != bool(printed.err)


def test_refused_operators_are_found(capsys: Any) -> None:
    (domain, name), reason = next(iter(REASONS.items()))
    assert main(["operators", "--only", f"{domain or 'ai.onnx'}.{name}"]) == 0
    assert f"{name}  |  refused: {reason}" in capsys.readouterr().out


def test_interrupted_while_arguments_are_read(monkeypatch: Any, capsys: Any) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sardonyx.cli.run.add_arguments", stop)
    assert main(["run", "model.onnx"]) == 130
    assert capsys.readouterr().err == "sardonyx: interrupted\n"


#: Values of SARDONYX_CACHE, and what is printed where /home/ada is the user's folder.
FOLDERS = [
    ("/home/ada/.cache/sardonyx", "~/.cache/sardonyx"), ("/home/adam/x", "/home/adam/x"),
    ("/srv/cache", "/srv/cache"), ("off", "off"),
]  # fmt: skip


@pytest.mark.parametrize(("folder", "shown"), FOLDERS)
def test_knobs(folder: str, shown: str, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("SARDONYX_CACHE", folder)
    assert main(["knobs"]) == 0
    printed = capsys.readouterr().out
    assert "SARDONYX_CPU" in printed
    assert f"\nSARDONYX_CACHE = {shown}  [default" in printed


ERRORS: list[tuple[list[str], int, str]] = [
    ([], 2, "required"),
    (["nonsense"], 2, "invalid choice"),
    (["run"], 2, "model"),
    (["run", "missing.onnx"], 1, "NoSuchFile"),
    (["run", "broken.onnx"], 1, "InvalidProtobuf"),
    (["run", "unknown.onnx"], 1, "Frobnicate"),
    (["run", "MODEL", "--dim", "S"], 2, "NAME=N"),
    (["run", "MODEL", "--dim", "T=3"], 2, "No input has a dimension 'T'"),
    (["run", "MODEL", "--inputs", "missing.npz"], 1, "missing.npz"),
    (["run", "MODEL", "--inputs", "broken.onnx"], 2, "no .npz file"),
    (["run", "MODEL", "--inputs", "other.npz"], 2, "are missing"),
    (["run", "MODEL", "--inputs", "objects.npz"], 2, "no .npz file"),
    (["run", "MODEL", "--dim", "S=99999999999999"], 1, "smaller sizes"),
    (["run", "MODEL", "--repeat", "0"], 2, "--repeat"),
    (["run", "MODEL", "--threads", "-1"], 2, "from 0"),
    (["show", "missing.onnx"], 1, "NoSuchFile"),
    (["show", "MODEL", "--stage", "nonsense"], 2, "invalid choice.*groups.*layout.*choices.*ptx"),
    (["show", "MODEL", "--target", "nonsense"], 2, "invalid choice.*avx512.*neon.*sm_90"),
    (["show", "MODEL", "--stage", "ptx", "--target", "sse"], 2, "Expected one of sm_80, sm_90"),
    (["show", "MODEL", "--stage", "asm", "--target", "sm_90"], 2, "Expected one of amx, avx512"),
    (["show", "MODEL", "--after", "nonsense"], 2, "No such pass.*merge equal values.*got nonsense"),
    (["show", "unknown.onnx", "--stage", "plan"], 1, "Frobnicate"),
    (["compare", "MODEL", "--against", "nonsense"], 1, "nonsense"),
    (
        ["compare", "MODEL", "--against", "json"],
        1,
        "'json' has no InferenceSession.*Expected a module with onnxruntime's InferenceSession",
    ),
    (["compare", "MODEL", "--against", ".x"], 1, "no module '.x'.*Expected a module"),
    (["compare", "unknown.onnx", "--against", "sardonyx"], 1, "Frobnicate"),
    (["compare", "MODEL", "--tolerance", "x"], 2, "--tolerance"),
]


@pytest.mark.parametrize(("arguments", "status", "text"), ERRORS, ids=lambda a: str(a)[:40])
def test_errors_are_a_line(
    arguments: list[str], status: int, text: str, model: str, tmp_path: Path, capsys: Any,
    monkeypatch: Any,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("broken.onnx").write_bytes(b"this is no model")
    np.savez("other.npz", q=np.zeros(3))
    np.savez("objects.npz", q=np.array([{}], object))
    node = onnx.helper.make_node("Frobnicate", ["a"], ["y"], domain="of.mine")
    float_pair = (onnx.TensorProto.FLOAT, [2])
    unknown = models.model([node], {"a": float_pair}, {"y": float_pair})
    Path("unknown.onnx").write_bytes(unknown)
    try:
        found = main([model if a == "MODEL" else a for a in arguments])
    except SystemExit as ended:
        found = int(ended.code or 0)
    assert found == status
    printed = capsys.readouterr().err.strip()
    assert "\n" not in printed
    assert re.search(text, printed)


def test_another_engine_that_refuses(model: str, capsys: Any, monkeypatch: Any) -> None:
    class Refusing:
        def __init__(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("not\ntoday")

    monkeypatch.setitem(sys.modules, "refusing", types.SimpleNamespace(InferenceSession=Refusing))
    assert main(["compare", model, "--against", "refusing"]) == 1
    assert capsys.readouterr().err == "sardonyx: Fail: [refusing] RuntimeError: not today.\n"


def test_an_index_outside_of_its_axis_is_no_wrong_usage(tmp_path: Path, capsys: Any) -> None:
    path, feeds = tmp_path / "g.onnx", tmp_path / "g.npz"
    text = "g (float[2,3] x, int64[1] i) => (float[1,3] y) { y = Gather(x, i) }"
    onnx.save(model_of(text), path)
    np.savez(feeds, x=np.ones((2, 3), np.float32), i=np.array([5]))
    assert main(["run", str(path), "--inputs", str(feeds)]) == 1
    assert "sardonyx: IndexOutOfRange: [node" in capsys.readouterr().err


def test_bad_switches(model: str, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("SARDONYX_LOG", "loud")
    assert main(["run", model]) == 2
    assert "SARDONYX_LOG" in capsys.readouterr().err
    assert main(["knobs"]) == 0
    assert "'loud'" in capsys.readouterr().out


def test_the_first_difference(model: str, capsys: Any) -> None:
    pytest.importorskip("onnxruntime")
    assert main(["compare", model, "--dim", "S=4", "--tolerance", "0"]) == 1
    assert "first difference: node " in capsys.readouterr().out


#: Two arrays of texts, and their error.
TEXTS: list[tuple[list[str], list[str], float]] = [
    (["a", "b"], ["a", "b"], 0.0),
    (["a", "b"], ["a", "c"], float("inf")),
    (["a"], ["a", "a"], float("inf")),
    ([], [], 0.0),
]


@pytest.mark.parametrize("kind", [object, str])
@pytest.mark.parametrize(("ours", "theirs", "error"), TEXTS)
def test_texts_are_compared(ours: list[str], theirs: list[str], error: float, kind: type) -> None:
    assert relative_error(np.array(ours, object), np.array(theirs, kind)) == error
