"""Profiles and models as pages: what the page is given. Clicks are in test_view_page.py."""

from __future__ import annotations

import html.parser
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.base.errors import Fail, InvalidArgument
from sardonyx.cli.main import main
from sardonyx.tools.view import comparing, document, page, placement, reading, write_page
from sardonyx.tools.view.trace import KERNEL, NODE, SESSION, Trace, trace_of
from tests.support.session import model_of
from tests.support.traces import hostile_name, kernel, node, run, trace_file

MODEL = """g (float[N, 8] x) => (float[N, 4] y, float[N, 4] z) {
    [first] a = MatMul(x, w)
    [bias] b = Add(a, c)
    [positive] y = Relu(b)
    [second] d = MatMul(y, v)
    [soft] z = Softmax(d)
    [unused] e = Identity(c)
}"""
WEIGHTS = {
    "w": np.ones((8, 4), np.float32),
    "c": np.ones(4, np.float32),
    "v": np.ones((4, 4), np.float32),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    onnx.save(model_of(MODEL, WEIGHTS), path)
    return path


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without the charts, which not every machine has."""
    monkeypatch.setattr(document, "library_text", lambda: 'var a = "</script><!--";')


def _data(text: str) -> dict[str, Any]:
    """What lies in a page's data block."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    return dict(json.loads(found[1]))


def _texts(trace: Trace, numbers: list[int]) -> list[str]:
    return [trace.texts.all[n] for n in numbers]


# -- columns --------------------------------------------------------------------------------------


def test_events_become_columns() -> None:
    events = [
        node("a", 100, 40, op="Conv", memory=512, arena=4096),
        kernel("k", 110, 20, tid=7, op="Conv"),
        node("b", 150, 10, op="Relu"),
        node("a", 300, 60, op="Conv", memory=256),
        run(90, 100),
        run(290, 100),
    ]
    trace = trace_of(events, "t")
    assert [(r[0], r[1], r[2]) for r in trace.rows] == [
        (SESSION, 90_000, 100_000),
        (NODE, 100_000, 40_000),
        (KERNEL, 110_000, 20_000),
        (NODE, 150_000, 10_000),
        (SESSION, 290_000, 100_000),
        (NODE, 300_000, 60_000),
    ]
    assert _texts(trace, [c.name for c in trace.commands]) == ["a", "k", "b"]
    assert [c.owner for c in trace.commands] == [-1, 0, -1]
    assert [r[7] for r in trace.rows if r[0] == NODE] == [512, -1, 256]
    assert trace.arena_bytes == 4096
    columns = trace.to_json()
    assert columns["events"]["start"] == [90_000, 10_000, 10_000, 40_000, 140_000, 10_000]
    assert columns["runs"] == [(90_000, 100_000, -1, 0 + trace.texts(""), trace.texts(""))] + [
        (290_000, 100_000, -1, trace.texts(""), trace.texts(""))
    ]
    assert json.loads(json.dumps(columns))["lanes"][0][1] == 0


def test_exact_times_are_preferred() -> None:
    event = node("a", 1, 2)
    event["args"] |= {"start_ns": "1234", "duration_ns": "567"}
    assert trace_of([event], "t").rows[0][1:3] == [1234, 567]


def test_nested_nodes_count_once() -> None:
    trace = trace_of([node("loop", 0, 100), node("body", 10, 30), node("body", 50, 40)], "t")
    assert [(r[5], r[6]) for r in trace.rows] == [(0, 70_000), (1, 0), (1, 0)]


def test_devices_and_threads_are_lanes() -> None:
    events = [
        node("a", 0, 5, tid=11),
        kernel("k", 1, 2, tid=-1, pid=-1, stream="7"),
        kernel("k", 4, 2, tid=-1, pid=-1, stream="8"),
        kernel("k", 8, 2, tid=-1, pid=-1),
        node("b", 9, 5, tid=12),
    ]
    trace = trace_of(events, "t")
    lanes = [(trace.texts.all[name], device) for name, device in trace.lanes]
    assert lanes == [
        ("thread 11", False), ("stream 7", True), ("stream 8", True), ("device", True),
        ("thread 12", False),
    ]  # fmt: skip


def test_who_holds_memory() -> None:
    event = run(0, 0)
    event["name"] = "memory_plan"
    event["args"] = {"plan": "2", "sizes": {"N": 3}, "buffers": [[64, 0, 1], [32, 1, "x"], "no"]}
    trace = trace_of([event], "t")
    assert trace.plans == [(2, trace.texts("N = 3"), [[64, 0, 1], [32, 1, 0]])]


@pytest.mark.parametrize(
    "broken",
    [
        {"cat": "Node"},
        {"cat": "Node", "name": None, "ts": "x", "dur": [], "tid": {}, "args": []},
        {"cat": ["Node"], "name": {}, "ts": 1e400, "dur": float("nan"), "pid": "p"},
        {"cat": "Kernel", "name": 5, "args": {"op_name": [1], "stream": "s"}},
        {"cat": "Node", "args": {"nodes": [1, None], "input_type_shape": {"a": 1}, "plan": "z"}},
        {"cat": "Session", "name": "model_run", "args": {"sizes": [1], "error": 3, "remark": 4}},
        {"cat": "Session", "name": "memory_plan", "args": {"buffers": 5}},
        {"cat": "Node", "ts": 10**40, "dur": -5},
    ],
    ids=range(8),
)
def test_nothing_in_a_trace_is_trusted(broken: dict[str, Any]) -> None:
    columns = trace_of([broken, node("a", 1, 1)], "t").to_json()
    events = columns["events"]
    assert all(isinstance(v, int) for column in events.values() for v in column)
    assert min(events["duration"]) >= 0


# -- files ----------------------------------------------------------------------------------------


def test_files_of_onnxruntime_are_read(tmp_path: Path) -> None:
    path = trace_file(tmp_path / "a.json", [node("a", 0, 5), node("b", 9, 5)])
    assert [e["name"] for e in reading.read_events(path)] == ["a_kernel_time", "b_kernel_time"]


def test_a_file_may_end_early(tmp_path: Path) -> None:
    path = trace_file(tmp_path / "a.json", [node("a", 0, 5), node("b", 9, 5)])
    text = path.read_text()
    path.write_text(text[: len(text) - 30])
    assert [e["name"] for e in reading.read_events(path)] == ["a_kernel_time"]


def test_traces_of_other_programs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"traceEvents": [node("a", 0, 5), {"ph": "M", "cat": "x"}]}))
    assert len(list(reading.read_events(path))) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "There are no events in it"),
        ("{}", "It is JSON, but no profile"),
        ('{"traceEvents": 5}', "It is JSON, but no profile"),
        ("[{", "It is neither a profile nor a model"),
        ("[" * 100_000, "It is nested too deeply"),
        ('[\n{"cat": 1},\nwrong,\n{"cat": 1}\n]', "Line 3 is no event, and others follow"),
    ],
)
def test_what_is_no_profile_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=reason):
        list(reading.read_events(path))


# -- comparing ------------------------------------------------------------------------------------


def test_parts_are_what_either_side_fuses() -> None:
    ours = [
        run(0, 100), node("conv", 0, 90, op="Conv", nodes=["conv", "relu"]),
        run(200, 50), node("conv", 200, 40, op="Conv", nodes=["conv", "relu"]),
        node("lone", 240, 5, op="Add"),
    ]  # fmt: skip
    theirs = [
        run(0, 100), node("conv", 0, 20, op="Conv"), node("relu_output_0_nchwc", 20, 10, op="Relu"),
        node("lone/AddFusion/", 40, 7, op="Add"), node("new", 50, 1, op="Copy"),
    ]  # fmt: skip
    parts = comparing.compare(trace_of(ours, "a"), trace_of(theirs, "b"))
    shown = {p.name: (p.operators, p.ns, p.calls) for p in parts}
    assert shown == {
        "conv": ("Conv Relu", [40_000, 30_000], [1, 2]),
        "lone/AddFusion/": ("Add", [5_000, 7_000], [1, 1]),
        "new": ("Copy", [0, 1_000], [0, 1]),
    }
    assert [p.name for p in parts] == ["conv", "lone/AddFusion/", "new"]


# -- placement ------------------------------------------------------------------------------------


def test_every_node_of_a_model_is_placed(model: Path) -> None:
    session = sardonyx.InferenceSession(model)
    rows, lines = placement.placement_of_model(session, model)
    placed = {row.node: row for row in rows}
    assert set(placed) >= {"first", "bias", "positive", "second", "soft", "unused"}
    assert placed["first"].command == placed["positive"].command >= 0
    assert placed["unused"].command == -1
    assert placed["unused"].remarks == (
        "it depends on weights alone, and was computed when the session was made",
    )
    assert placed["first"].remarks == ("ends here: this is the output y",)
    assert placed["soft"].remarks == ("ends here: this is the output z",)
    assert lines == session.explain().splitlines()


def test_sizes_that_were_chosen_are_told(tmp_path: Path, no_library: None) -> None:
    built = model_of("g (float[N, ?, 2] x) => (float[N, M, 2] y) { y = Relu(x) }")
    path = tmp_path / "m.onnx"
    onnx.save(built, path)
    remarks = _data(page(path, dims={"N": 1}))["profiles"][0]["trace"]["remarks"]
    assert remarks == ["sizes chosen: x.1=1 (others with --dim NAME=N)"]
    found = _data(page(path, dims={"x.0": 1, "x.1": 2}))["profiles"][0]["trace"]
    assert found["remarks"] == []
    assert len(found["runs"]) == 5


def test_reasons_why_kernels_end(tmp_path: Path) -> None:
    text = """g (float[4, 8] x) => (float[4, 4] y, float[4, 8] z) {
        [first] a = MatMul(x, w)
        [second] y = MatMul(a, v)
        [soft] b = Softmax(x)
        [left] z = CumSum(b, one)
    }"""
    path = tmp_path / "m.onnx"
    weights = WEIGHTS | {"one": np.int64(1)}
    onnx.save(model_of(text, {k: weights[k] for k in ("w", "v", "one")}), path)
    rows, _ = placement.placement_of_model(sardonyx.InferenceSession(path), path)
    reasons = {row.node: row.remarks for row in rows}
    assert any("both have sums of products" in r for r in reasons["first"]), reasons


# -- the page -------------------------------------------------------------------------------------


class _Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append(tag)


@pytest.mark.usefixtures("no_library")
def test_names_never_become_tags(tmp_path: Path) -> None:
    name = hostile_name()
    plain = page(trace_file(tmp_path / "a.json", [node("a", 0, 5), run(0, 9)]))
    path = tmp_path / "b<img src=x onerror=alert(1)>&.json"
    text = page(trace_file(path, [node(name, 0, 5, op=name, nodes=[name, "\ud800"]), run(0, 9)]))
    tags = [_Tags(), _Tags()]
    tags[0].feed(plain)
    tags[1].feed(text)
    assert tags[0].found == tags[1].found
    assert tags[0].found.count("script") == 3
    assert name in _data(text)["profiles"][0]["trace"]["texts"]
    assert text.encode()  # no halves of surrogates


@pytest.mark.usefixtures("no_library")
def test_nothing_runs_but_the_page_itself(tmp_path: Path) -> None:
    import base64
    import hashlib

    text = page(trace_file(tmp_path / "a.json", [node("a", 0, 5)]))
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    allowed = re.search(r"script-src ([^;]*);", text.replace("&#x27;", "'"))
    assert allowed
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert allowed[1] == " ".join(f"'sha256-{d}'" for d in digests)
    assert "default-src 'none'" in text.replace("&#x27;", "'")


@pytest.mark.usefixtures("no_library")
def test_profiles_files_and_models(model: Path, tmp_path: Path) -> None:
    session = sardonyx.InferenceSession(model)
    with session.profile() as profile:
        session.run(None, {"x": np.ones((3, 8), np.float32)})
    profile.save(tmp_path / "p.json")
    of_object, of_file = _data(page(profile)), _data(page(tmp_path / "p.json"))
    events = [found["profiles"][0]["trace"]["events"] for found in (of_object, of_file)]
    assert events[0]["what"] == events[1]["what"]
    assert of_file["profiles"][0]["placement"]["node"]
    assert of_file["profiles"][0]["trace"]["plans"][0][0] == 0
    of_model = _data(page(model, dims={"N": 2}, runs=3))["profiles"][0]
    assert len(of_model["trace"]["runs"]) == 3
    assert any("kernels for" in line for line in of_model["explain"])
    unknown = _data(page(model))["profiles"][0]
    assert unknown["trace"]["events"]["start"]
    assert unknown["trace"]["remarks"] == ["sizes chosen: N=1 (others with --dim NAME=N)"]
    assert _data(page(profile, model, dims={"N": 2}))["comparison"]["name"]


@pytest.mark.usefixtures("no_library")
def test_a_model_that_does_not_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "g (float[1, 1, T] x) => (float[1, 1, U] y) { y = Conv (x, w) }"
    path = tmp_path / "w.onnx"
    onnx.save(model_of(text, {"w": np.ones((1, 1, 4), np.float32)}), path)
    found = _data(page(path))["profiles"][0]
    assert found["trace"]["remarks"][0].startswith("It was not run: ")
    assert found["placement"]["node"]
    assert "w.onnx was not run" in caplog.text
    assert "Nobody gave T (1). Try --dim T=N" in caplog.text


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["{model}", "--dim", "N"], "It is not NAME=N"),
        (["{model}", "--dim", "M=2"], "No input has a dimension 'M'"),
        (["{model}", "--provider", "nonsense"], "no provider 'nonsense' here"),
        (["{model}", "--runs", "0"], "no whole number from 1"),
        (["{model}", "--output", "{model}"], "It would replace the model"),
        (["{model}", "--output", "{folder}/no/x.html"], "cannot be written"),
        (["{folder}/none.json"], "There is no such file"),
    ],
)  # fmt: skip
def test_what_the_command_refuses(
    model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    given = [a.format(model=model, folder=model.parent) for a in arguments]
    try:
        status = main(["view", *given])
    except SystemExit as ended:
        status = int(ended.code or 0)
    found = capsys.readouterr()
    assert status == (1 if "no such file" in reason else 2)
    assert reason in found.err
    assert found.err.count("\n") == 1
    assert list(model.parent.iterdir()) == [model]


@pytest.mark.usefixtures("no_library")
def test_the_command_writes_a_page(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda uri: shown.append(uri) or True)
    assert main(["view", str(model), "--dim", "N=2"]) == 0
    assert capsys.readouterr().out.startswith("small.html: ")
    assert not shown
    assert _data((model.parent / "small.html").read_text())["profiles"][0]["trace"]["runs"]
    assert main(["view", str(model), "--dim", "N=2", "--open", "-o", "other.html"]) == 0
    assert shown == [(model.parent / "other.html").as_uri()]


@pytest.mark.usefixtures("no_library")
def test_an_old_page_stays_if_a_new_one_fails(tmp_path: Path) -> None:
    old = tmp_path / "p.html"
    old.write_text("old")
    with pytest.raises(InvalidArgument):
        write_page(old, trace_file(tmp_path / "empty.json", []))
    assert old.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty.json", "p.html"]


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    document.library_text.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Fail, match=r'pip install -e "\.\[view\]"'):
        page(trace_file(tmp_path / "a.json", [node("a", 0, 5)]))
