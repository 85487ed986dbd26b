"""Pipelines of scikit-learn, LightGBM and XGBoost, converted by their users' tools.

`pipelines/NAME.onnx` came from skl2onnx or onnxmltools; `NAME.npz` holds feeds (`in_*`) and what
onnxruntime 1.31.1 gave for them (`out_*`; of a sequence of maps the keys are in `keys_*`).
"""

from pathlib import Path

import numpy as np
import pytest

import sardonyx
from tests.support.tolerances import assert_near

MODELS = sorted((Path(__file__).parent / "pipelines").glob("*.onnx"))


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_pipeline(path):
    stored = dict(np.load(path.with_suffix(".npz")))
    feeds = {
        name[3:]: value.astype(object) if value.dtype.kind == "U" else value
        for name, value in stored.items()
        if name.startswith("in_")
    }
    session = sardonyx.InferenceSession(str(path))
    results = dict(
        zip((o.name for o in session.get_outputs()), session.run(None, feeds), strict=True)
    )
    assert {f"out_{name}" for name in results} == {n for n in stored if n.startswith("out_")}
    for name, got in results.items():
        if isinstance(got, list):
            keys = stored[f"keys_{name}"].tolist()
            assert all(list(row) == keys for row in got)
            got = np.array([list(row.values()) for row in got], np.float32)
        want = stored[f"out_{name}"]
        if want.dtype.kind in "Ui":
            assert got.tolist() == want.tolist()
        else:
            assert got.dtype == want.dtype
            assert_near(got, want, "float: layers")
    one = {name: value[:1] for name, value in feeds.items()}
    first = session.run(None, one)
    for name, got in zip(results, first, strict=True):
        if not isinstance(got, list) and stored[f"out_{name}"].dtype.kind == "f":
            assert_near(got, stored[f"out_{name}"][:1], "float: layers")
    # A run like the last one takes a shorter way.
    for name, got, again in zip(results, first, session.run(None, one), strict=True):
        same = got == again if isinstance(got, list) else np.array_equal(got, again)
        assert same, name
