"""Files of settings: tuning alone, and everything else refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.api import settings as stored
from sardonyx.api.config_keys import SESSION_KEYS
from sardonyx.api.cuda_options import CUDA, OPTIONS
from sardonyx.api.options import _DEFAULTS
from sardonyx.api.providers import CPU
from sardonyx.api.tuning_rules import CALLER, CONFIG, PROVIDERS, SESSION
from sardonyx.base.errors import InvalidArgument
from tests.support.session import model_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
MODEL = model_of("g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }", {})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(MODEL, "m.onnx")
    return tmp_path


def _entry(**settings: Any) -> dict[str, Any]:
    given = {"session_options": {}} | settings
    return {
        "model": stored.model_digest("m.onnx"),
        "device": stored.device(),
        "settings": given,
    }


def _write(*entries: Any, **more: Any) -> str:
    text = json.dumps({"format": stored.FORMAT, "entries": list(entries)} | more)
    Path("s.json").write_text(text)
    return "s.json"


def _session(monkeypatch: pytest.MonkeyPatch, by_variable: bool) -> Any:
    options = sardonyx.SessionOptions()
    if by_variable:
        monkeypatch.setenv("SARDONYX_SETTINGS", "s.json")
    else:
        options.add_session_config_entry("session.settings_file", "s.json")
    return sardonyx.InferenceSession("m.onnx", options, providers=[CPU])


#: Values of every property and entry there is that somebody could want to smuggle in.
SMUGGLED: list[tuple[dict[str, Any], str]] = [
    *(({"session_options": {name: value}}, name) for name, value in _DEFAULTS.items()
      if name not in SESSION),
    *(({"session_options": {"extra_session_config": {key: "1"}}}, key) for key in SESSION_KEYS
      if key not in CONFIG),
    *(({"execution_provider": CUDA, "provider_options": {key: "1"}}, key) for key in OPTIONS
      if key not in PROVIDERS[CUDA]),
    ({"provider_options": {"use_tf32": "0"}}, "use_tf32"),
    ({"execution_provider": "NonsenseExecutionProvider"}, "NonsenseExecutionProvider"),
    ({"session_options": {"_config": {}}}, "_config"),
    ({"session_options": {"load_flag": 1}}, "load_flag"),
    ({"session_options": {"intra_op_num_threads": 5000}}, "intra_op_num_threads"),
    ({"session_options": {"intra_op_num_threads": -1}}, "intra_op_num_threads"),
    ({"session_options": {"intra_op_num_threads": True}}, "intra_op_num_threads"),
    ({"session_options": {"intra_op_num_threads": "2"}}, "intra_op_num_threads"),
    ({"session_options": {"intra_op_num_threads": 2.0}}, "intra_op_num_threads"),
    ({"session_options": {"execution_mode": 2}}, "execution_mode"),
    ({"session_options": {"graph_optimization_level": 50}}, "graph_optimization_level"),
    ({"session_options": [1]}, "session_options"),
    ({"session_options": {"extra_session_config": 3}}, "extra_session_config"),
    ({"session_options": {"extra_session_config": {"session.disable_winograd": 1}}},
     "session.disable_winograd"),
    ({"session_options": {"extra_session_config": {"session.dynamic_block_base": "9999"}}},
     "session.dynamic_block_base"),
    ({"session_options": {"extra_session_config": {
        "optimization.disable_specified_optimizers": "NoSuchThing"}}},
     "optimization.disable_specified_optimizers"),
    ({"io_bind": 1}, "io_bind"),
    ({"concurrency": 0}, "concurrency"),
    ({"batch_size": 1 << 40}, "batch_size"),
    ({"tuning_results": [3]}, "tuning"),
    ({"tuning_results": {}}, "tuning"),
    ({"tuning_results": [{"ep": CPU, "results": {"a": {"rows": 10**9}}, "validators": {}}]},
     "tuning"),
    ({"tuning_results": [{"ep": CPU, "results": {}, "validators": {}, "code": "x"}]}, "code"),
    ({"run": "rm"}, "run"),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "name"), SMUGGLED, ids=[n for _, n in SMUGGLED])
def test_everything_but_tuning_is_refused_by_name(
    settings: dict[str, Any], name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(_entry(**settings))
    before = sorted(folder.iterdir())
    with pytest.raises(InvalidArgument, match=name.replace(".", r"\.")):
        _session(monkeypatch, by_variable=False)
    assert sorted(folder.iterdir()) == before


#: What a file could do before: properties or entries, which file is written over or opened.
ATTACKS: list[dict[str, Any]] = [
    {"optimized_model_filepath": "precious"},
    {"enable_profiling": 1, "profile_file_prefix": "precious"},
    {"extra_session_config": {"session.load_model_format": "BUNDLE"}},
    {"extra_session_config": {"session.memory_limit_bytes": "1000000000000"}},
    {"extra_session_config": {
        "session.model_external_initializers_file_folder_path": "/"}},
]  # fmt: skip


@pytest.mark.parametrize("by_variable", [False, True])
@pytest.mark.parametrize("options", ATTACKS, ids=[next(reversed(a)) for a in ATTACKS])
def test_a_file_of_settings_does_nothing_else(
    options: dict[str, Any], by_variable: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("precious").write_text("precious")
    _write(_entry(session_options=options))
    before = sorted(folder.iterdir())
    with pytest.raises(InvalidArgument, match="may not be set there"):
        _session(monkeypatch, by_variable)
    assert Path("precious").read_text() == "precious" and sorted(folder.iterdir()) == before


def test_a_bundle_is_not_opened_on_a_files_word(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is a bundle of another machine under an innocent name."""
    from sardonyx.compiler.bundle_writer import bundle_file
    from sardonyx.store import bundle

    bundle_file("m.onnx", "b.sardonyx")
    Path("b.sardonyx").replace("m.onnx")
    monkeypatch.setattr(bundle.Bundle, "is_own", False)
    _write(_entry(session_options={"extra_session_config": {FORMAT: "BUNDLE"}}))
    with pytest.raises(InvalidArgument, match=r"load_model_format.*may not be set"):
        _session(monkeypatch, by_variable=True)


FORMAT = "session.load_model_format"

#: Content of a file, what is said of it.
DAMAGED: list[tuple[bytes, str]] = [
    (b"[" * 200_000, "nested too deeply"),
    (b'{"format": "sardonyx settings 1", "entries": ' + b"[" * 200_000, "nested too deeply"),
    (b'{"format": "sardonyx settings 1", "format": 1}', "the key 'format' twice"),
    (b'{"format": "sardonyx settings 1", "entries": [NaN]}', "NaN for a number"),
    (b'{"format": "sardonyx settings 1", "entries": [], "more": 1}', "'more' may not be set"),
    (b'{"format": "sardonyx settings 1"}', "no list of entries"),
    (b'{"format": "sardonyx settings 1", "entries": [3]}', "no object"),
    (b'{"format": "sardonyx settings 1", "entries": [{"model": "a", "device": 3}]}', "'device'"),
    (b'{"format": "sardonyx settings 2", "entries": []}', "No file of settings"),
    (b"\xff\xff", "It is no JSON"),
    (b"", "It is no JSON"),
    (b" " * ((16 << 20) + 1), "too long"),
]


@pytest.mark.parametrize(("content", "said"), DAMAGED, ids=[s for _, s in DAMAGED])
def test_damaged_files(
    content: bytes, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("s.json").write_bytes(content)
    with pytest.raises(InvalidArgument, match=said) as found:
        _session(monkeypatch, by_variable=True)
    assert "s.json" in str(found.value)


def test_what_tune_writes_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sardonyx.tools.tune.outcome import LAYOUTS

    kernels = {"ep": CPU, "results": {}, "validators": {}}
    _write(
        _entry(
            execution_provider=CPU, provider_options={},
            session_options={
                "intra_op_num_threads": 1, "inter_op_num_threads": 2, "execution_mode": 1,
                "graph_optimization_level": 0,
                "extra_session_config": {
                    "session.dynamic_block_base": "4", "session.disable_winograd": "1",
                    "optimization.disable_specified_optimizers": LAYOUTS,
                },
            },
            tuning_results=[kernels], io_bind=True, concurrency=2, batch_size=4,
        )
    )  # fmt: skip
    session = _session(monkeypatch, by_variable=False)
    options = session.get_session_options()
    assert options.intra_op_num_threads == 1 and options.block_base == 4
    x = np.array([[-1, 2, -3, 4]], np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], [[0, 2, 0, 4]])


def test_the_list_is_documented() -> None:
    text = (DOCS / "tuning.md").read_text()
    names = [*SESSION, *CONFIG, *CALLER, *(n for own in PROVIDERS.values() for n in own)]
    assert [name for name in names if f"`{name}`" not in text] == []


#: What `ort_config` of a model may ask for, what is said otherwise.
CONFIGS: list[tuple[str, str]] = [
    ("[" * 200_000, "nested too deeply"),
    ('{"session_options": {"intra_op_num_threads": 100000}}', "0 to 4096"),
    ('{"session_options": {"intra_op_num_threads": 1, "intra_op_num_threads": 2}}', "twice"),
    ('{"session_options": {"optimized_model_filepath": "x"}}', "may not be set"),
    ('{"session_options": {"enable_profiling": 7}}', "enable_profiling"),
    ('{"session_options": 3}', "no object"),
    ("{}", "no JSON with session_options"),
]


@pytest.mark.parametrize(("text", "said"), CONFIGS, ids=[s for _, s in CONFIGS])
def test_options_that_a_model_asks_for(text: str, said: str) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    onnx.helper.set_model_props(model, {"ort_config": text})
    with pytest.raises(InvalidArgument, match=said):
        sardonyx.InferenceSession(model.SerializeToString(), read_config_from_model=1)
