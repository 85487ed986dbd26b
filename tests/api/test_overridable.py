"""Initializers that a file lists as inputs: constants, unless a run feeds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.inspection import inspect
from sardonyx.base import errors
from tests.api import models
from tests.support.tolerances import is_near

RANDOM = np.random.default_rng(1)
X = RANDOM.standard_normal((5, 3)).astype(np.float32)
WEIGHTS: dict[str, Any] = {
    "w": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32),
    "c": np.float32(2),
}
OTHERS: dict[str, Any] = {
    "w": RANDOM.standard_normal((3, 4)).astype(np.float32),
    "c": np.array(-3, np.float32),
}


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    return ort.InferenceSession(models.scaled())


def expected(**fed: Any) -> Any:
    random = np.random.default_rng(0)
    weight, bias = random.standard_normal((3, 4)), random.standard_normal(4)
    given = {"w": weight.astype(np.float32), "c": np.float32(2), **fed}
    return np.maximum(X @ given["w"] + bias.astype(np.float32), 0) * given["c"]


@pytest.mark.parametrize("names", [(), ("w",), ("c",), ("w", "c")])
def test_feeding_them(session: Any, names: tuple[str, ...]) -> None:
    fed = {n: OTHERS[n] for n in names}
    for _ in range(2):
        found = session.run(None, {"x": X, **fed})[0]
        assert is_near(found, expected(**fed), "float: sums")
    reversed_feeds = dict(reversed(list({"x": X, **fed}.items())))
    assert np.array_equal(session.run(["y"], reversed_feeds)[0], found)


def test_each_set_is_one_plan() -> None:
    made = ort.InferenceSession(models.scaled())
    assert not inspect(made).variants
    for _ in range(3):
        made.run(None, {"x": X, "w": OTHERS["w"]})
        made.run(None, {"x": X})
    assert list(inspect(made).variants) == ["feeds of w"]
    plain = [b.kind for b in inspect(made).plan.buffers].count("constant")
    fed = inspect(made).variants["feeds of w"].plan
    assert [b.kind for b in fed.buffers].count("input") == 2
    assert plain >= 1


def test_what_is_listed(session: Any) -> None:
    assert [v.name for v in session.get_inputs()] == ["x"]
    assert [(v.name, v.shape) for v in session.get_overridable_initializers()] == [
        ("w", [3, 4]), ("c", []),
    ]  # fmt: skip


def test_older_files_have_none() -> None:
    old = ort.InferenceSession(models.scaled(3, ("w", "b", "c")))
    assert old.get_overridable_initializers() == []
    assert [v.name for v in old.get_inputs()] == ["x"]
    with pytest.raises(errors.InvalidArgument, match="no input 'w'"):
        old.run(None, {"x": X, "w": OTHERS["w"]})


def test_wrong_feeds(session: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="input w"):
        session.run(None, {"x": X, "w": OTHERS["w"].astype(np.float64)})
    with pytest.raises(errors.InvalidArgument, match="input w"):
        session.run(None, {"x": X, "w": OTHERS["w"][:2]})
    with pytest.raises(errors.InvalidArgument, match="no input 'b'"):
        session.run(None, {"x": X, "b": np.zeros(4, np.float32)})
    with pytest.raises(ValueError, match="missing"):
        session.run(None, {"w": OTHERS["w"]})


def test_bound(session: Any) -> None:
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("w", OTHERS["w"])
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert is_near(binding.copy_outputs_to_cpu()[0], expected(w=OTHERS["w"]), "float: sums")


@pytest.mark.parametrize(("version", "listed"), [(8, ("w", "c")), (3, ("w", "b", "c")), (8, ())])
def test_as_onnxruntime_has_it(version: int, listed: tuple[str, ...]) -> None:
    other = pytest.importorskip("onnxruntime")
    model = models.scaled(version, listed)
    theirs = other.InferenceSession(model, providers=["CPUExecutionProvider"])
    ours = ort.InferenceSession(model)
    for method in ("get_inputs", "get_overridable_initializers"):
        want = [(v.name, v.type, v.shape) for v in getattr(theirs, method)()]
        assert [(v.name, v.type, v.shape) for v in getattr(ours, method)()] == want
    names = [v.name for v in ours.get_overridable_initializers()]
    fed = {"x": X, **{n: OTHERS[n] for n in names}}
    assert is_near(ours.run(None, fed)[0], theirs.run(None, fed)[0], "float: sums")
