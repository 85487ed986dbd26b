"""Small changes of model files, as calls and as commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.cli.main import main
from sardonyx.loader.writer import write
from sardonyx.tools import models
from sardonyx.tools.optimizer.model import open_model, optimize_graph
from tests.support.layers import Net, bert
from tests.support.tolerances import assert_near


@pytest.fixture
def model(tmp_path: Path, monkeypatch: Any) -> dict[str, Any]:
    """bert's file in the current folder, one of its weights an input; what to feed."""
    made, feeds = bert()
    last = [w for w in made.graph.initializer if len(w.dims) == 2][-1]
    value = onnx.helper.make_tensor_value_info(last.name, last.data_type, last.dims)
    made.graph.input.append(value)
    monkeypatch.chdir(tmp_path)
    onnx.save(made, "model.onnx")
    return feeds


def _run(path: str, feeds: dict[str, Any]) -> Any:
    return sardonyx.InferenceSession(path).run(None, feeds)[0]


def test_initializers_are_no_inputs(model: dict[str, Any]) -> None:
    assert len(onnx.load("model.onnx").graph.input) == 4
    assert main(["tools", "remove-initializer-from-input", "model.onnx", "out.onnx"]) == 0
    written = onnx.load("out.onnx")
    assert [i.name for i in written.graph.input] == ["ids", "types", "mask"]
    np.testing.assert_array_equal(_run("out.onnx", model), _run("model.onnx", model))


SHAPES: list[list[str]] = [
    ["--dim", "N=2", "--dim", "S=6"],
    ["--dim_param", "S", "--dim_value", "6", "--dim", "N=2"],
    ["--input_name", "types", "--input_shape", "2,6"],
]


@pytest.mark.parametrize("arguments", SHAPES, ids=lambda a: a[0])
def test_fixed_shapes(arguments: list[str], model: dict[str, Any], capsys: Any) -> None:
    assert main(["tools", "fix-shapes", "model.onnx", "out.onnx", *arguments]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "out.onnx: its inputs and outputs are now"
    assert "ids: [2, 6]" in printed
    session = sardonyx.InferenceSession("out.onnx")
    assert [i.shape for i in session.get_inputs()][:3] == [[2, 6]] * 3
    assert [o.shape for o in session.get_outputs()] == [[2, 6, 32]]
    written = onnx.load("out.onnx").graph.output[0].type.tensor_type.shape
    assert [d.dim_value for d in written.dim] == [2, 6, 32]


def test_unnamed_sizes_are_fixed(tmp_path: Path) -> None:
    net = Net()
    x = net.input("x", [None, 3], net.weight(2, 3))
    path = tmp_path / "out.onnx"
    shapes = models.fix_shapes(net.model(net.op("Exp", x)), path, inputs={"x": [5, 3]})
    assert list(shapes.values()) == [[5, 3], [5, 3]]


def test_newer_operators(model: dict[str, Any], capsys: Any) -> None:
    onnx.save(bert(13)[0], "old.onnx")
    assert main(["tools", "update-opset", "old.onnx", "out.onnx", "--opset", "17"]) == 0
    assert "version 17" in capsys.readouterr().out
    assert onnx.load("out.onnx").opset_import[0].version == 17
    assert_near(_run("out.onnx", model), _run("old.onnx", model), "float: sums")


def test_external_data(model: dict[str, Any], capsys: Any) -> None:
    command = ["tools", "split-external", "model.onnx", "out.onnx", "--location", "w.bin"]
    assert main([*command, "--threshold", "2000"]) == 0
    held = _weights("out.onnx", external=True).values()
    external = [{e.key: e.value for e in w.external_data} for w in held]
    assert len(external) > 4
    assert all(int(e["offset"]) % 4096 == 0 and e["location"] == "w.bin" for e in external)
    assert all(int(e["length"]) >= 2000 for e in external)
    assert f"{os.path.getsize('w.bin')} in w.bin" in capsys.readouterr().out
    np.testing.assert_array_equal(_run("out.onnx", model), _run("model.onnx", model))


def _weights(path: str, *, external: bool = False) -> dict[str, Any]:
    held = onnx.load(path, load_external_data=not external).graph.initializer
    if external:
        return {w.name: w for w in held if w.data_location == onnx.TensorProto.EXTERNAL}
    return {w.name: onnx.numpy_helper.to_array(w) for w in held}


def test_weights_are_given_later(model: dict[str, Any], capsys: Any) -> None:
    assert main(["tools", "strip-weights", "model.onnx", "out.onnx"]) == 0
    assert os.path.getsize("out.onnx") < os.path.getsize("model.onnx") / 3
    assert "add_external_initializers" in capsys.readouterr().out
    names = models.strip_weights("out.onnx", "again.onnx")
    assert not names
    weights = _weights("model.onnx")
    missing = {name: weights[name] for name in _weights("out.onnx", external=True)}
    with pytest.raises(FileNotFoundError, match=r"in which .* lies.*add_external_initializers"):
        sardonyx.InferenceSession("out.onnx")
    options = sardonyx.SessionOptions()
    values = [sardonyx.OrtValue.ortvalue_from_numpy(v) for v in missing.values()]
    options.add_external_initializers(list(missing), values)
    for path in ("out.onnx", "again.onnx"):
        got = sardonyx.InferenceSession(path, options).run(None, model)[0]
        np.testing.assert_array_equal(got, _run("model.onnx", model))


#: Arguments, exit status, text on stderr.
ERRORS: list[tuple[list[str], int, str]] = [
    (["tools"], 2, "NAME"),
    (["tools", "nonsense"], 2, "nonsense"),
    (["tools", "fix-shapes", "model.onnx", "out.onnx"], 2, "Give --dim"),
    (["tools", "fix-shapes", "model.onnx", "out.onnx", "--dim", "N"], 2, "NAME=N"),
    (["tools", "fix-shapes", "model.onnx", "out.onnx", "--dim", "M=2"], 2, "'M'"),
    (["tools", "fix-shapes", "model.onnx", "out.onnx", "--dim_param", "N"], 2, "go together"),
    (["tools", "fix-shapes", "model.onnx", "out.onnx", "--input_name", "ids"], 2, "go together"),
    (["tools", "fix-shapes", "model.onnx", "out.onnx", "--input_name", "ids",
      "--input_shape", "2"], 2, "number of axes"),
    (["tools", "fix-shapes", "model.onnx", "out.onnx", "--input_name", "idx",
      "--input_shape", "2,6"], 2, "Did you mean 'ids'"),
    (["tools", "fix-shapes", "model.onnx", "out.onnx", "--input_name", "ids",
      "--input_shape", "2,x"], 2, "list of numbers"),
    (["tools", "update-opset", "model.onnx", "out.onnx", "--opset", "17"], 2,
     "has version 17, and onnx knows"),
    (["tools", "split-external", "model.onnx", "out.onnx", "--location", "../w"], 2, "its own"),
    (["tools", "split-external", "model.onnx", "out.onnx", "--threshold", "-1"], 2, "from 0"),
    (["tools", "split-external", "model.onnx", "out.onnx", "--location", "model.onnx"], 2,
     "would replace the model"),
    (["tools", "strip-weights", "model.onnx", "."], 2, "folder"),
    (["tools", "fix-shapes", "model.onnx", "out.onnx", "--dim", "N=9223372036854775808"], 2,
     "so large"),
    (["tools", "strip-weights", "missing.onnx", "out.onnx"], 1, "NoSuchFile"),
    (["tools", "strip-weights", "broken.onnx", "out.onnx"], 1, "InvalidProtobuf"),
    (["tools", "strip-weights", "model.onnx", "nowhere/out.onnx"], 2, "nowhere"),
    (["optimize"], 2, "Give a model, once"),
    (["optimize", "model.onnx"], 2, "Give a file to write, once"),
    (["optimize", "model.onnx", "out.onnx", "--input", "model.onnx"], 2, "once"),
    (["optimize", "missing.onnx", "out.onnx"], 1, "NoSuchFile"),
    (["optimize", "broken.onnx", "out.onnx"], 1, "InvalidProtobuf"),
    (["optimize", "model.onnx", "nowhere/out.onnx"], 2, "nowhere"),
    (["optimize", "model.onnx", "."], 2, "folder"),
    (["optimize", "model.onnx", "out.onnx", "--external-data", "-5"], 2, "from 0"),
    (["optimize", "model.onnx", "out.onnx", "--hidden_size", "-8"], 2, "from 0"),
    (["optimize", "model.onnx", "out.onnx", "--free-dim", "N"], 2, "NAME=N"),
    (["optimize", "model.onnx", "out.onnx", "--free-dim", "T=2"], 2, "'T'"),
    (["optimize", "model.onnx", "out.onnx", "--level", "5"], 2, "--level"),
    (["optimize", "model.onnx", "out.onnx", "--num_heads", "5", "--hidden_size", "32"], 2, "heads"),
    (["optimize", "model.onnx", "out.onnx", "--model_type", "nonsense"], 2, "nonsense"),
    (["optimize", "model.onnx", "out.onnx", "--convert_to_packing_mode"], 2, "no meaning here"),
    (["optimize", "model.onnx", "out.onnx", "--disable_shape_inference"], 2, "no meaning here"),
    (["optimize", "model.onnx", "out.onnx", "--fuse", "--only_onnxruntime"], 2, "contradicts"),
    (["optimize", "model.onnx", "out.onnx", "--op_block_list", "Add"], 2, "needs --float16"),
    (["optimize", "model.onnx", "out.onnx", "--float16", "--keep_io_types", "z"], 2, "'z'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "status", "text"), ERRORS, ids=lambda a: str(a)[:60])
def test_errors_are_a_line(
    arguments: list[str], status: int, text: str, model: dict[str, Any], capsys: Any
) -> None:
    Path("broken.onnx").write_bytes(b"this is no model")
    before = sorted(os.listdir())
    try:
        found = main(arguments)
    except SystemExit as ended:
        found = int(ended.code or 0)
    printed = capsys.readouterr().err.strip()
    assert (found, "\n" in printed) == (status, False)
    assert text in printed
    assert sorted(os.listdir()) == before


def test_optimize(model: dict[str, Any], capsys: Any) -> None:
    assert main(["optimize", "model.onnx", "out.onnx", "--fuse", "--external-data", "2000"]) == 0
    printed = capsys.readouterr().out
    for line in ("  Attention: 2\n", "  EmbedLayerNormalization: 1\n", "  BiasGelu: 2\n"):
        assert line in printed
    assert os.path.getsize("out.onnx.data") > os.path.getsize("out.onnx")
    assert_near(_run("out.onnx", model), _run("model.onnx", model), "float: layers")


def test_optimize_with_onnxruntimes_flags(model: dict[str, Any], capsys: Any) -> None:
    command = ["optimize", "--input", "model.onnx", "--output", "out.onnx", "--model_type", "bert"]
    assert (
        main([*command, "--disable_attention", "--float16", "--verbose", "--opt_level", "1"]) == 0
    )
    printed = capsys.readouterr().out
    assert "Attention" not in printed
    assert "  BiasGelu: 2\n" in printed
    types = {i.type for i in sardonyx.InferenceSession("out.onnx").get_outputs()}
    assert types == {"tensor(float)"}


def test_a_model_over_itself(model: dict[str, Any]) -> None:
    """Programs may do it; commands do not."""
    want = _run("model.onnx", model)
    write(optimize_graph(open_model("model.onnx")).graph, "model.onnx")
    assert_near(_run("model.onnx", model), want, "float: sums")


def test_an_interrupted_run_leaves_nothing(
    model: dict[str, Any], monkeypatch: Any, capsys: Any
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = sorted(os.listdir())
    monkeypatch.setattr("sardonyx.loader.writer._Writer.graph", stop)
    assert main(["tools", "split-external", "model.onnx", "out.onnx"]) == 130
    assert capsys.readouterr().err == "sardonyx: interrupted\n"
    assert sorted(os.listdir()) == before


def test_sessions_write_their_optimised_model(model: dict[str, Any]) -> None:
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = "out.onnx"
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_file_name", "weights.bin"
    )
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_min_size_in_bytes", "3000"
    )
    want = sardonyx.InferenceSession("model.onnx", options).run(None, model)[0]
    assert os.path.getsize("weights.bin") > 3000
    onnx.checker.check_model("out.onnx")
    assert_near(_run("out.onnx", model), want, "float: sums")
