"""Conversions: what is written, compared, said. Frameworks take part where they are installed."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import Fail, InvalidArgument, NoSuchFile
from sardonyx.cli import main as cli
from sardonyx.tools.convert import convert
from sardonyx.tools.convert import convert as package_of_convert
from sardonyx.tools.convert.source import Wishes, attribute, flat
from tests.support.session import model_of

convert_module = sys.modules["sardonyx.tools.convert.convert"]
_TEXT = """
g (float[n, 3] x) => (float[n, 3] y, int64[n] k) {
    y = Exp (x)
    k = ArgMax <axis = 1, keepdims = 0> (x)
}
"""


class _Stub:
    """A framework whose models say `exp(x) * factor` and the place of the largest."""

    framework = "stub"

    def __init__(self, factor: float = 1.0, outputs: int = 2, breaks: str = "") -> None:
        self.factor, self.outputs, self.breaks = factor, outputs, breaks

    def example(self, random: np.random.Generator) -> dict[str, Any]:
        return {"x": random.standard_normal((4, 3)).astype(np.float32)}

    def export(self, target: str, wishes: Wishes) -> None:
        if self.breaks == "export":
            Path(target).write_bytes(b"half")
            raise ValueError("\x1b[96mno\x1b[0m")
        text = _TEXT.replace("Exp", "Expp") if self.breaks == "check" else _TEXT
        Path(target).write_bytes(model_of(text).SerializeToString())

    def run(self, inputs: Mapping[str, Any]) -> list[Any]:
        if self.breaks == "run":
            raise ValueError("no")
        x = inputs["x"].astype(np.float64)
        return [np.exp(x) * self.factor, x.argmax(1)][: self.outputs]


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> _Stub:
    made = _Stub()
    monkeypatch.setattr(convert_module, "open_source", lambda *_, **__: made)
    return made


def test_outputs_that_agree(stub: _Stub, tmp_path: Path) -> None:
    report = convert("x", tmp_path / "m.onnx")
    assert report.is_right
    assert [o.name for o in report.outputs] == ["y", "k"]
    assert 0 < report.outputs[0].relative < 1e-6
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx"]
    assert sardonyx.InferenceSession(tmp_path / "m.onnx").get_outputs()[0].name == "y"


@pytest.mark.parametrize(
    ("factor", "outputs", "said"), [(1.01, 2, "WRONG y: error 0.0099"), (1.0, 1, "there are 2")]
)
def test_outputs_that_do_not(
    stub: _Stub, tmp_path: Path, factor: float, outputs: int, said: str
) -> None:
    stub.factor, stub.outputs = factor, outputs
    report = convert("x", tmp_path / "m.onnx")
    assert not report.is_right
    assert said in str(report)
    assert "DIFFERS" in str(report)
    assert (tmp_path / "m.onnx").exists()  # to look for the reason


def test_the_command_says_so_by_its_status(
    stub: _Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "m.onnx")
    assert cli.main(["convert", "x", target]) == 0
    assert "agrees with the source" in capsys.readouterr().out
    stub.factor = 2.0
    assert cli.main(["convert", "x", target]) == 1
    assert cli.main(["convert", "x", target, "--tolerance", "0.6"]) == 0
    assert cli.main(["convert", "x", target, "--input", "x=2x3"]) == 1


@pytest.mark.parametrize("before", [b"", b"before"])
@pytest.mark.parametrize(
    ("breaks", "text"),
    [
        ("export", "cannot be exported: ValueError: no"),
        ("run", "cannot be run: ValueError: no"),
        ("check", r"m.onnx\] The converted model does not run, so it was not written: .*Expp"),
    ],
)
def test_what_cannot_be_converted_or_checked_is_not_written(
    stub: _Stub, tmp_path: Path, breaks: str, text: str, before: bytes
) -> None:
    """What was there before stays."""
    target = tmp_path / "m.onnx"
    if before:
        target.write_bytes(before)
    stub.breaks = breaks
    with pytest.raises(Fail, match=text) as caught:
        convert("x", target)
    assert ".sardonyx-" not in str(caught.value)
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [before] * bool(before)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--input", "x"], "no input"),
        (["--input", "x=2x3:floats"], "no input"),
        (["--free", "x"], "no axis"),
        (["--free", "z.0=n"], "no such input"),
        (["--free", "x.5=n"], "no such axis"),
        (["--inputs", "nothing.npz"], "nothing.npz"),
    ],
)
def test_bad_arguments(
    stub: _Stub, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert cli.main(["convert", "x", str(tmp_path / "m.onnx"), *arguments]) in (1, 2)
    assert said.lower() in capsys.readouterr().err.lower()
    assert not list(tmp_path.iterdir())


def test_sources_that_are_none(tmp_path: Path) -> None:
    held = tmp_path / "model.pkl"
    held.write_bytes(pickle.dumps({}))
    other = tmp_path / "model.xyz"
    other.write_bytes(b"")
    for source, said in (
        (str(held), "runs whatever code"),
        (str(other), "not known what this file is"), ("no.module:name", "cannot be found"),
        ("os:nothing", "cannot be found"), ({}, "not known what a dict is"),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument, match=said):
            convert(source, tmp_path / "m.onnx")
    with pytest.raises(NoSuchFile, match="no such file"):
        convert("nothing.txt", tmp_path / "m.onnx")
    with pytest.raises(InvalidArgument, match="no such framework"):
        convert({}, tmp_path / "m.onnx", framework="caffe")
    with pytest.raises(InvalidArgument, match="not known what a dict is"):
        convert(str(held), tmp_path / "m.onnx", trust_pickle=True)


def test_sources_that_cannot_be_opened(tmp_path: Path) -> None:
    """Errors of other code end in a line, and what was read stays."""
    held = tmp_path / "model.pkl"
    held.write_bytes(b"no pickle")
    for source in (str(held), "json:loads", "sardonyx.base.errors:message"):
        with pytest.raises(Fail, match=r"cannot be opened: (UnpicklingError|TypeError): "):
            convert(source, tmp_path / "m.onnx", trust_pickle=True)
    with pytest.raises(InvalidArgument, match="would replace the model"):
        convert(str(held), held)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"no pickle"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    held = tmp_path / "model.txt"
    held.write_bytes(b"tree")
    with pytest.raises(InvalidArgument, match=r"lightgbm .*pip install -e .\.\[lightgbm\]"):
        convert(str(held), tmp_path / "m.onnx")


def test_parts() -> None:
    assert flat({"a": [1, (2, None)], "b": 3}) == [1, 2, 3]
    assert attribute("os.path:join").__name__ == "join"
    assert package_of_convert is convert


@pytest.mark.parametrize("kind", ["classifier", "regressor", "cluster", "projection"])
def test_scikit_learn(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx", reason="the extra sklearn is not installed")
    from sklearn import cluster, decomposition, linear_model, pipeline, preprocessing

    x = np.random.default_rng(0).standard_normal((90, 5)).astype(np.float32)
    made = {
        "classifier": linear_model.LogisticRegression(), "regressor": linear_model.Ridge(),
        "cluster": cluster.KMeans(3, n_init=1), "projection": decomposition.PCA(2),
    }[kind]  # fmt: skip
    y = x[:, 0] > 0 if kind == "classifier" else x[:, 1]
    model = pipeline.make_pipeline(preprocessing.StandardScaler(), made).fit(x, y)
    assert convert(model, tmp_path / "m.onnx").is_right


@pytest.mark.parametrize("framework", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("classes", [0, 2, 3])
def test_boosted_trees(framework: str, classes: int, tmp_path: Path) -> None:
    """With scikit-learn's face, and the booster alone from its file."""
    pytest.importorskip("onnxmltools", reason=f"the extra {framework} is not installed")
    module = pytest.importorskip(framework, reason=f"the extra {framework} is not installed")
    x = np.random.default_rng(0).standard_normal((90, 5)).astype(np.float32)
    y = np.digitize(x[:, 0], np.linspace(-0.5, 0.5, classes - 1)) if classes else x[:, 0]
    prefix = "LGBM" if framework == "lightgbm" else "XGB"
    kind = getattr(module, f"{prefix}{'Classifier' if classes else 'Regressor'}")
    model = kind(n_estimators=5).fit(x, y)
    assert convert(model, tmp_path / "m.onnx").is_right
    held = tmp_path / ("booster.txt" if framework == "lightgbm" else "booster.json")
    (model.booster_ if framework == "lightgbm" else model).save_model(held)
    assert convert(str(held), tmp_path / "m.onnx").is_right


def test_torch(tmp_path: Path) -> None:
    """A module with nested results and a free batch, and an exported program."""
    pytest.importorskip("onnxscript", reason="the extra torch is not installed")
    torch = pytest.importorskip("torch", reason="the extra torch is not installed")

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.c, self.l = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 5)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.c(x)).mean((2, 3))
            return {"logits": self.l(y), "parts": (y, y.argmax(1))}

    x = np.random.default_rng(0).standard_normal((2, 3, 8, 9)).astype(np.float32)
    report = convert(Net(), tmp_path / "m.onnx", inputs={"x": x}, free={"x": {0: "batch"}})
    assert report.is_right
    assert len(report.outputs) == 3
    assert sardonyx.InferenceSession(tmp_path / "m.onnx").get_inputs()[0].shape[0] == "batch"
    program = torch.export.export(Net().eval(), (torch.from_numpy(x),))
    torch.export.save(program, tmp_path / "net.pt2")
    assert convert(str(tmp_path / "net.pt2"), tmp_path / "m.onnx").is_right


def test_keras(tmp_path: Path) -> None:
    pytest.importorskip("tf2onnx", reason="the extra tensorflow is not installed")
    tf = pytest.importorskip("tensorflow", reason="the extra tensorflow is not installed")
    layers = [tf.keras.Input((8, 9, 3)), tf.keras.layers.Conv2D(4, 3), tf.keras.layers.Flatten()]
    model = tf.keras.Sequential(layers)
    assert convert(model, tmp_path / "m.onnx").is_right
    model.save(tmp_path / "m.keras")
    assert convert(str(tmp_path / "m.keras"), tmp_path / "m.onnx").is_right
    model.export(str(tmp_path / "saved"))
    assert convert(str(tmp_path / "saved"), tmp_path / "m.onnx").is_right
