"""Names that terminals obey, that hide or forge text: none leaves the program as it is."""

from __future__ import annotations

import json
import logging
import re
import traceback
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.base.errors import SardonyxError, message
from sardonyx.base.log import get_logger
from sardonyx.base.printable import printable
from sardonyx.cli.main import COMMANDS, main

#: An escape sequence, a bell, CR LF and a line of a log, bidirectional marks, no width, C1, DEL.
BAD = "\x1b[31m\x07\r\nFORGED \u202e\u2066\u200b\ufeff\x9b\x7f\u2028\U000e0041"


def evil(name: str) -> str:
    return f"{name}{BAD}"


def check(text: str, where: str) -> None:
    """Nothing but what is read is in a text, and no line of it is a name's."""
    bad = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert bad <= {"\n", "\t"}, f"{where}: {text!r}"
    assert not re.search(r"^\s*FORGED", text, re.MULTILINE), f"{where}: {text!r}"


def _evil_model() -> onnx.ModelProto:
    """Every name and text of it is evil; it runs."""
    dim, x, y, h, w = map(evil, ("N", "x", "y", "h", "w"))
    nodes = [
        helper.make_node("MatMul", [x, w], [h], evil("product"), evil("doc")),
        helper.make_node("Identity", [h], [evil("same")], evil("same node")),
        helper.make_node("Relu", [evil("same")], [y], evil("relu")),
    ]
    weights = numpy_helper.from_array(np.eye(4, dtype=np.float32), w)
    graph = helper.make_graph(
        nodes, evil("graph"),
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [dim, 4], evil("doc"))],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [dim, 4])], [weights], evil("doc"),
    )  # fmt: skip
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], producer_name=evil("producer"),
        producer_version=evil("1"), domain=evil("domain"), doc_string=evil("doc"), ir_version=8,
    )  # fmt: skip
    helper.set_model_props(model, {evil("key"): evil("value")})
    return model


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sardonyx.tools.view.document.library_text", lambda: "")
    onnx.save(_evil_model(), "m.onnx")
    np.savez("bad.npz", **{evil("z"): np.zeros(3, np.float32)})
    np.savez("in.npz", **{evil("x"): np.zeros((2, 4), np.float32)})
    np.savez("shape.npz", **{evil("x"): np.zeros((2, 5), np.float32)})
    graph = _evil_model()
    graph.graph.node[2].op_type = evil("NoSuch")
    onnx.save(graph, "op.onnx")
    graph.graph.node[2].domain = evil("no.such")
    graph.opset_import.append(helper.make_opsetid(evil("no.such"), 1))
    onnx.save(graph, "domain.onnx")
    graph = _evil_model()
    graph.graph.node[1].input[0] = evil("nowhere")
    onnx.save(graph, "broken.onnx")
    graph = _evil_model()
    graph.graph.initializer[0].dims[0] = 5
    onnx.save(graph, "weights.onnx")
    return tmp_path


MODELS = ("m.onnx", "op.onnx", "domain.onnx", "broken.onnx", "weights.onnx")
#: Every command that has to do with a model, FILE; `COMMANDS` that have none are not here.
LINES = [
    "run FILE --explain --verbose --repeat 1 --timings", "run FILE --inputs bad.npz",
    "run FILE --inputs in.npz", "run FILE --inputs shape.npz",
    "show FILE --stage graph", "show FILE --stage graph --after load", "show FILE --stage plan",
    "show FILE --stage kernels", "show FILE --stage llvm", "show FILE --stage tensors",
    "show FILE --stage groups", "show FILE --stage layout", "show FILE --stage choices",
    "show FILE --stage choices --target sm_90", "show FILE --stage ptx",
    "compare FILE --against sardonyx", "explain FILE --nodes", "explain FILE --verbose",
    "explain FILE --json", "explain FILE --no-run", "explain FILE --why relu",
    "perf FILE -r 1 -s", "perf FILE -r 1 -I",
    "optimize FILE out.onnx", "bundle FILE out.sardonyx", "archive FILE --output out",
    "tools strip-weights FILE out.onnx",
    "tools fix-shapes FILE out.onnx --dim Q=3", "tools update-opset FILE out.onnx --opset 18",
    "tools remove-initializer-from-input FILE out.onnx", "tools split-external FILE out.onnx",
    "quantize FILE out.onnx", "quantize FILE out.onnx --report", "view FILE",
    "tune FILE --budget 1 --skip provider,threads,blocks,mode,level,binding,kernels",
]  # fmt: skip
WITHOUT_MODEL = {"demo", "doctor", "knobs", "operators", "convert"}


def test_no_command_is_left_out() -> None:
    assert {line.split()[0] for line in LINES} | WITHOUT_MODEL == set(COMMANDS)


def _logged(caplog: pytest.LogCaptureFixture) -> str:
    return "".join(f"{logging.Formatter().format(record)}\n" for record in caplog.records)


@pytest.mark.parametrize("line", LINES)
def test_every_command(
    line: str, folder: Path, capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "sardonyx")
    for model in MODELS[:1] if line.startswith("tune") else MODELS:
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                main(line.replace("FILE", model).split())
        except SystemExit as end:
            assert end.code in (0, 1, 2)
        found = capsys.readouterr()
        assert found.out or found.err
        check(found.out, f"{line} {model} stdout")
        check(found.err, f"{line} {model} stderr")
        for record in warned:
            check(str(record.message), f"{line} {model} warning")
    check(_logged(caplog), f"{line} log")


def test_arguments_that_are_not_known(capsys: Any) -> None:
    """File names that a shell puts into the line may be evil, too."""
    for line in (["doctor", evil("x")], ["run", "m.onnx", evil("x")], [evil("x")]):
        with pytest.raises(SystemExit):
            main(line)
        error = capsys.readouterr().err
        check(error, str(line))
        assert error.count("\n") == 1


def test_pages(folder: Path, capsys: Any) -> None:
    assert main(["view", "m.onnx"]) == 0
    page = Path("m.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)

    def walk(value: Any) -> None:
        if isinstance(value, str):
            check(value, "page")
        elif isinstance(value, (list, dict)):
            for part in [*value, *value.values()] if isinstance(value, dict) else value:
                walk(part)

    walk(json.loads(data))
    args = {"op_name": evil("Op"), evil("k"): evil("v")}
    event = {"cat": "Node", "name": evil("a_kernel_time"), "ph": "X", "ts": 1, "dur": 2}
    profile = [event | {"pid": 1, "tid": 1, "args": args}]
    Path(f"p{chr(0x202E)}.json").write_text(json.dumps(profile))
    assert main(["view", f"p{chr(0x202E)}.json", "--output", "p.html"]) == 0
    check(Path("p.html").read_text(), "page of a profile")


def _session() -> Any:
    return sardonyx.InferenceSession("m.onnx")


def _feeds(**more: Any) -> dict[str, Any]:
    return {evil("x"): np.ones((2, 4), np.float32), **more}


#: What raises: each must name what is wrong, in text that can be printed.
FAULTS: dict[str, Callable[[], Any]] = {
    "unknown operator": lambda: sardonyx.InferenceSession("op.onnx"),
    "unknown domain": lambda: sardonyx.InferenceSession("domain.onnx"),
    "unknown value": lambda: sardonyx.InferenceSession("broken.onnx"),
    "wrong weights": lambda: sardonyx.InferenceSession("weights.onnx"),
    "no such file": lambda: sardonyx.InferenceSession(evil("file.onnx")),
    "missing feed": lambda: _session().run(None, {}),
    "unknown feed": lambda: _session().run(None, _feeds(**{evil("q"): np.ones(3)})),
    "type": lambda: _session().run(None, {evil("x"): np.ones((2, 4))}),
    "shape": lambda: _session().run(None, {evil("x"): np.ones((2, 5), np.float32)}),
    "rank": lambda: _session().run(None, {evil("x"): np.ones(4, np.float32)}),
    "object": lambda: _session().run(None, {evil("x"): object()}),
    "unknown output": lambda: _session().run([evil("nothing")], _feeds()),
    "out": lambda: _session().run(None, _feeds(), out=[np.ones(3, np.float32)]),
    "binding": lambda: _session().io_binding().bind_cpu_input(evil("q"), np.ones(3)),
    "provider": lambda: _session().set_providers([evil("Provider")]),
    "property": lambda: setattr(sardonyx.SessionOptions(), evil("option"), 1),
    "value": lambda: setattr(sardonyx.SessionOptions(), "logid", [evil("a")]),
    "entry": lambda: sardonyx.SessionOptions().get_session_config_entry(evil("key")),
    "load": lambda: sardonyx.load("m.onnx", **{evil("option"): 1}),
    "data": lambda: _run_fault(),
}  # fmt: skip


def _run_fault() -> Any:
    x, y, i = map(evil, "xyi")
    node = helper.make_node("Gather", [x, i], [y], evil("gather"))
    graph = helper.make_graph(
        [node], evil("g"),
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [3]),
         helper.make_tensor_value_info(i, TensorProto.INT64, [1])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [1])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = sardonyx.InferenceSession(model.SerializeToString())
    return session.run(None, {x: np.ones(3, np.float32), i: np.array([99])})


@pytest.mark.parametrize("fault", FAULTS)
def test_errors(fault: str, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "sardonyx")
    with pytest.raises((SardonyxError, AttributeError)) as found:
        FAULTS[fault]()
    error: BaseException | None = found.value
    while error is not None:
        if isinstance(error, SardonyxError):
            check(str(error), fault)
            check(repr(error), fault)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    check(str(found.value), fault)
    shown = "".join(traceback.format_exception(found.value))
    bad = {c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")}
    assert bad <= {"\n", "\t"}
    check(_logged(caplog), fault)


def test_values_are_unchanged(folder: Path) -> None:
    """Programs get names as they are; texts for people do not."""
    session = _session()
    (x,), (y,) = session.get_inputs(), session.get_outputs()
    assert (x.name, x.shape[0], y.name) == (evil("x"), evil("N"), evil("y"))
    facts = session.get_modelmeta()
    assert facts.custom_metadata_map == {evil("key"): evil("value")}
    assert facts.graph_name == evil("graph") and facts.description == evil("doc")
    (found,) = session.run([evil("y")], _feeds())
    np.testing.assert_array_equal(found, np.ones((2, 4), np.float32))
    with session.profile() as profile:
        session.run(None, _feeds())
    texts = [repr(session), session._repr_html_(), repr(x), session.explain(verbose=True)]
    texts += [str(profile.table()), str(profile.table(by="operator")), repr(profile)]
    texts += [session.explain()._repr_html_(), str(session.get_session_options())]
    for text in texts:
        check(text, "shown")


def test_logs_and_messages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "sardonyx")
    logger = get_logger("cache")
    logger.warning("%s and %r, %d", evil("a"), evil("b"), 3)
    try:
        raise ValueError(evil("cause"))
    except ValueError:
        logger.exception("%s", evil("c"))
    logging.getLogger("sardonyx").warning("%s", evil("root"))
    assert len(caplog.records) == 3
    text = _logged(caplog)
    bad = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")}
    assert bad <= {"\n", "\t"}
    for record in caplog.records:
        check(record.getMessage(), "log")
        assert "\n" not in record.getMessage()
    found = message(evil("where"), evil("what"), expected=evil("e"), got=evil("g"), do=evil("do"))
    check(found, "message")
    assert "\n" not in found and found.count(r"\x1b[31m\x07\r\nFORGED \u202e\u2066\u200b") == 5


def test_what_is_printable() -> None:
    assert printable("plain ä 漢字 \u00a0\u3000 é") == "plain ä 漢字 \u00a0\u3000 é"
    assert printable("a\nb\tc") == r"a\nb\tc" and printable("a\nb\tc", has_lines=True) == "a\nb\tc"
    assert printable("a\rb", has_lines=True) == r"a\rb"
    assert printable("\ud800\u115f\ufe0f") == r"\ud800\u115f\ufe0f"
    assert printable(printable(BAD)) == printable(BAD)
    for number in range(0x110000):
        c = chr(number)
        if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            assert printable(c) != c
