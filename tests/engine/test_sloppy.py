"""Files as careless exporters write them: what is taken, what is refused, what is warned of."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import sardonyx
from sardonyx.base import errors, knobs
from tests.engine.sloppy_models import INFO, REFUSED, TAKEN, X, Y, changed
from tests.support.tolerances import assert_near


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name: str) -> None:
    make, want = TAKEN[name]
    session = sardonyx.InferenceSession(make().SerializeToString())
    feeds: dict[str, Any] = {"x": X}
    if len(session.get_inputs()) == 2:
        feeds["c"] = np.array(True)
    got = session.run(None, feeds)
    wanted = want if isinstance(want, list) else [want]
    assert len(got) == len(wanted) == len(session.get_outputs())
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine.dtype == np.float32
        assert mine.shape == np.shape(theirs)
        assert_near(mine, theirs, "float: one operation")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        sardonyx.InferenceSession(make().SerializeToString())


#: Name in TAKEN, a part of the warning.
WARNED = {
    "an output of wrong type (onnxruntime: an error)": r"y is float\[n, 3\], not int64",
    "an output of wrong size": r"y is float\[n, 3\], not float\[7, 8\]",
    "a value of wrong type (onnxruntime: an error)": r"z is float\[n, 3\], not int64\[9\]",
    "a tensor declared as a sequence (onnxruntime: an error)": r"z is tensor\(float\), not seq",
    "a value of wrong shape": r"z is float\[n, 3\], not float\[n, 4\]",
    "a weight twice: the last one": "'w' comes twice",
    "only another domain is imported": "is assumed",
}


@pytest.fixture
def uncached() -> Iterator[None]:
    with knobs.override("SARDONYX_CACHE", "off"):
        yield


@pytest.mark.usefixtures("uncached")
@pytest.mark.parametrize("name", TAKEN)
def test_warned(name: str, caplog: pytest.LogCaptureFixture) -> None:
    sardonyx.InferenceSession(TAKEN[name][0]().SerializeToString())
    texts = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(texts) == (name in WARNED or name == "an output of wrong rank")
    if name in WARNED:
        assert len([t for t in texts if re.search(WARNED[name], t)]) == 1


@pytest.mark.usefixtures("uncached")
def test_newer_operators_than_known(caplog: pytest.LogCaptureFixture) -> None:
    model = changed(lambda m: setattr(m.opset_import[0], "version", 99))
    session = sardonyx.InferenceSession(model.SerializeToString())
    assert np.array_equal(session.run(None, {"x": X})[0], Y)
    assert "imports version 99" in caplog.text


def test_warnings_about_a_file_come_with_each_session(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """From the cache, from the plan of a model that differs in weights, and from a bundle, too."""
    path, other, bundle = (tmp_path / n for n in ("model.onnx", "other.onnx", "model.bundle"))
    with knobs.override("SARDONYX_CACHE", str(tmp_path / "cache")):
        model = onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 99]> g (float[n,4] x) => (float[n,4] y)'
            " { y = MatMul(x, w) }"
        )
        for place, number in ((path, 1), (path, 1), (other, 2)):
            del model.graph.initializer[:]
            weight = np.full((4, 4), number, np.float32)
            model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
            onnx.save(model, place)
            caplog.clear()
            sardonyx.InferenceSession(place)
            told = [r for r in caplog.records if "imports version 99" in r.getMessage()]
            assert [r.levelname for r in told] == ["WARNING"]
        options = sardonyx.SessionOptions()
        options.log_severity_level = 3
        caplog.clear()
        sardonyx.InferenceSession(path, options)
        assert not caplog.records
        sardonyx.ModelCompiler(sardonyx.SessionOptions(), str(path)).compile_to_file(str(bundle))
        options = sardonyx.SessionOptions()
        options.add_session_config_entry("session.load_model_format", "BUNDLE")
        caplog.clear()
        sardonyx.InferenceSession(bundle, options)
        assert "imports version 99" in caplog.text


def test_an_unused_input_is_still_fed() -> None:
    model = changed(lambda m: m.graph.input.append(INFO("u", 1, [2, 3])))
    session = sardonyx.InferenceSession(model.SerializeToString())
    assert [v.name for v in session.get_inputs()] == ["x", "u"]
    assert np.array_equal(session.run(None, {"x": X, "u": X})[0], Y)
    with pytest.raises(errors.InvalidArgument, match=r"\['u'\].*missing"):
        session.run(None, {"x": X})


def test_an_output_twice_and_bound_memory() -> None:
    session = sardonyx.InferenceSession(TAKEN["an output twice"][0]().SerializeToString())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], Y)
    first, second = session.run(None, {"x": X})
    assert not np.shares_memory(first, second)


@pytest.mark.parametrize("form", [3, 4])
def test_weights_listed_as_inputs(form: int) -> None:
    model = TAKEN["weights listed as inputs, format 3"][0]()
    model.ir_version = form
    session = sardonyx.InferenceSession(model.SerializeToString())
    assert [v.name for v in session.get_inputs()] == ["x"]
    overridable = [v.name for v in session.get_overridable_initializers()]
    assert overridable == ([] if form == 3 else ["w"])
    w = np.float32([5, 6, 7])
    if form == 4:
        assert np.array_equal(session.run(None, {"x": X, "w": w})[0], X + w)
        return
    with pytest.raises(errors.InvalidArgument, match="no input 'w'"):
        session.run(None, {"x": X, "w": w})
