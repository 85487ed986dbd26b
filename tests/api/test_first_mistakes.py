"""What a new user gets wrong first, and what is said of it."""

from __future__ import annotations

import errno
import logging
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

import sardonyx
from sardonyx import as_onnxruntime
from sardonyx.base import notes
from sardonyx.base.errors import Fail, InvalidArgument, InvalidGraph, NoSuchFile
from tests.support.session import model_of

_RELU = "g (float[N, 2] x) => (float[N, 2] y) { y = Relu(x) }"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(_RELU).SerializeToString())
    return path


@pytest.mark.parametrize(("level", "is_logged"), [(-1, True), (2, True), (3, False), (4, False)])
def test_level_of_a_session_holds_for_its_options(
    level: int, is_logged: bool, model: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "_noted", set())
    caplog.set_level(logging.DEBUG, "sardonyx")
    options = sardonyx.SessionOptions()
    options.log_severity_level = level
    options.enable_mem_pattern = False
    options.add_free_dimension_override_by_name("M", 3)
    sardonyx.InferenceSession(model, options, providers=[("CPUExecutionProvider", _HINT)])
    found = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    wanted = ("enable_mem_pattern", "'M'", "arena_extend_strategy")
    assert [any(word in text for text in found) for word in wanted] == [is_logged] * 3


_HINT = {"arena_extend_strategy": "kSameAsRequested"}


def test_what_one_session_dropped_another_is_told(
    caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "_noted", set())
    for level in (4, 2):
        options = sardonyx.SessionOptions()
        options.log_severity_level = level
        options.enable_mem_pattern = False
    assert "enable_mem_pattern" in caplog.text


def test_nearest_argument_is_named(model: Path) -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'providers'"):
        sardonyx.InferenceSession(model, provider=["CPUExecutionProvider"])


def test_unknown_arguments_are_type_errors_too() -> None:
    with pytest.raises(TypeError, match="Did you mean 'temperature'"):
        sardonyx.generate("model.onnx", [1], temprature=0.5)  # type: ignore[call-arg]


#: What is fed to `x` and `mask`, and what is said.
FEEDS: list[tuple[dict[str, Any], str]] = [
    (
        {},
        "[run] Required inputs (['x', 'mask']) are missing from input feed ([]). "
        "Feed x (float[N, 2]), mask (bool[?, 2]).",
    ),
    (
        {"x": [[1, 2]]},
        "[run] Required inputs (['mask']) are missing from input feed (['x']). "
        "Feed mask (bool[?, 2]).",
    ),
    (
        {"x": [[1, 2]], "Mask": [[True, True]]},
        "[run] Required inputs (['mask']) are missing from input feed (['x', 'Mask']). "
        "Did you mean 'mask'?",
    ),
]


@pytest.mark.parametrize(("feeds", "text"), FEEDS, ids=[str(f) for f, _ in FEEDS])
def test_missing_feeds_are_described(feeds: dict[str, Any], text: str) -> None:
    made = model_of(
        "g (float[N, 2] x, bool[M, 2] mask) => (float[N, 2] y) { y = Where(mask, x, x) }"
    )
    made.graph.input[1].type.tensor_type.shape.dim[0].Clear()
    session = sardonyx.InferenceSession(made.SerializeToString())
    with pytest.raises(InvalidArgument) as caught:
        session.run(None, feeds)
    assert str(caught.value) == text


def test_of_many_missing_feeds_some_are_described() -> None:
    listed = ", ".join(f"float[1] x{k}" for k in range(9))
    session = sardonyx.InferenceSession(model_of(f"g ({listed}) => (float[1] y) {{ y = Neg(x8) }}"))
    with pytest.raises(InvalidArgument, match=r"\. Feed x0 .*, x3 \(float\[1\]\) and 5 more\.$"):
        session.run(None, {})


#: An argument of another type than it has, and what is said.
OTHERS: list[tuple[Any, str]] = [
    (
        lambda model: sardonyx.InferenceSession(model, sess_options={"threads": 1}),
        "[InferenceSession] sess_options is of another type. Expected SessionOptions, got dict. "
        "Make one with SessionOptions(), and set its attributes.",
    ),
    (
        lambda model: sardonyx.InferenceSession(model).run(None, {}, {"tag": "x"}),
        "[run] run_options is of another type. Expected RunOptions, got dict. "
        "Make one with RunOptions(), and set its attributes.",
    ),
    (
        lambda model: sardonyx.ModelCompiler({}, str(model)),
        "[ModelCompiler] sess_options is of another type. Expected SessionOptions, got dict.",
    ),
    (
        lambda model: sardonyx.InferenceSession(model, providers="CPUExecutionProvider"),
        "[InferenceSession] providers is not a list. Expected names in a list, such as "
        "['CUDAExecutionProvider', 'CPUExecutionProvider'], got 'CPUExecutionProvider'.",
    ),
]


@pytest.mark.parametrize(("call", "text"), OTHERS, ids=[t[:24] for _, t in OTHERS])
def test_arguments_of_another_type(call: Any, text: str, model: Path) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call(model)
    assert str(caught.value) == text


def test_model_is_not_replaced_by_what_becomes_of_it(model: Path, tmp_path: Path) -> None:
    link, before = tmp_path / "link.onnx", model.read_bytes()
    link.symlink_to(model)
    for path in (model, link):
        options = sardonyx.SessionOptions()
        options.optimized_model_filepath = str(path)
        with pytest.raises(InvalidArgument, match="would replace the model"):
            sardonyx.InferenceSession(model, options)
    assert model.read_bytes() == before
    options.optimized_model_filepath = str(tmp_path / "nowhere" / "other.onnx")
    with pytest.raises(InvalidArgument, match=r"other\.onnx.*cannot be written"):
        sardonyx.InferenceSession(model, options)


@pytest.mark.parametrize(
    ("call", "kind", "advice"),
    [
        ("Reluu(x)", InvalidGraph, "Did you mean 'Relu'"),
        ("my.ops.FooBar(x)", Fail, "docs/own_operators"),
    ],
)
def test_unknown_operators(call: str, kind: type[Exception], advice: str) -> None:
    text = f"g (float[2] x) => (float[2] y) {{ y = {call} }}"
    found = model_of(text)
    if not any(o.domain == "my.ops" for o in found.opset_import):
        found.opset_import.add(domain="my.ops", version=1)
    with pytest.raises(kind, match=advice):
        sardonyx.InferenceSession(found.SerializeToString())


def test_warnings_point_at_the_program(model: Path) -> None:
    with pytest.warns(UserWarning) as found:
        sardonyx.InferenceSession(model, providers=["TensorrtExecutionProvider"])
    assert {w.filename for w in found} == {__file__}


def test_missing_files_have_a_number(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as found:
        sardonyx.InferenceSession(tmp_path / "none.onnx")
    assert isinstance(found.value, NoSuchFile)
    assert found.value.errno == errno.ENOENT


def test_file_of_a_program_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.py").write_text("")
    seen = list[str]()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["as_onnxruntime", "app.py", "1"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(as_onnxruntime, "install_as_onnxruntime", lambda: None)
    monkeypatch.setattr(runpy, "run_path", lambda path, **_: seen.append(path))
    monkeypatch.setattr(as_onnxruntime.spawn, "get_command_line", lambda **_: [])
    as_onnxruntime.main()
    assert seen == [str(tmp_path / "app.py")]
    assert sys.argv == ["app.py", "1"]
