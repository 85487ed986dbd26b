"""Runs that name their outputs: which they give, again and again, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.api import output_names
from sardonyx.base import errors
from tests.support.session import model_of
from tests.support.tolerances import assert_near

_TEXT = """g (float[N] x) => (float[N] y, float[N] z, float[N] v)
    { a = Add(x, x) y = Neg(a) z = Mul(a, x) v = Exp(x) }"""
_X = np.array([1, -2, 0.5], np.float32)
_GIVEN = {"y": -2 * _X, "z": 2 * _X * _X, "v": np.exp(_X)}

_LISTS = [
    (["y", "z", "v"], "yzv"),
    (("y", "z", "v"), "yzv"),
    (["v"], "v"),
    (["v", "y"], "vy"),
    (["z", "z"], "zz"),
    (["y", "y", "y"], "yyy"),
    ([], "yzv"),
    (None, "yzv"),
]


@pytest.fixture(scope="module")
def session() -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(model_of(_TEXT).SerializeToString())


def _check(found: list[Any], wanted: str) -> None:
    assert len(found) == len(wanted)
    for array, name in zip(found, wanted, strict=True):
        assert_near(array, _GIVEN[name], "float: one operation")


@pytest.mark.parametrize(("names", "wanted"), _LISTS, ids=repr)
def test_outputs_in_the_order_of_their_names(
    session: sardonyx.InferenceSession, names: Any, wanted: str
) -> None:
    value = sardonyx.OrtValue.ortvalue_from_numpy(_X)
    for _ in range(3):  # the second run is as the last one was
        _check(session.run(names, {"x": _X}), wanted)
        found = session.run_with_ort_values(names, {"x": value})
        _check([v.numpy() for v in found], wanted)


def test_a_list_that_changes_is_asked_for_anew(session: sardonyx.InferenceSession) -> None:
    names = ["y", "z", "v"]
    for wanted in ("yzv", "vzy", "v"):
        names[:] = wanted
        _check(session.run(names, {"x": _X}), wanted)


def test_inner_values_beside_outputs(session: sardonyx.InferenceSession) -> None:
    value = sardonyx.OrtValue.ortvalue_from_numpy(_X)
    for names in (["a", "y"], ["y", "a"]):
        for found in (
            session.run(names, {"x": _X}),
            [v.numpy() for v in session.run_with_ort_values(names, {"x": value})],
        ):
            np.testing.assert_array_equal(found[names.index("a")], 2 * _X)
            np.testing.assert_array_equal(found[names.index("y")], -2 * _X)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("names", "kind", "text"),
    [
        ("y", errors.WrongType, "not a list. Expected .'y'., got 'y'"),
        (3, errors.WrongType, "not a list"),
        (["y", "w"], errors.InvalidArgument, "'w'"),
        ([b"y"], errors.InvalidArgument, "b'y'"),
        ([["y"]], errors.InvalidArgument, "'y'"),
        ([np.array(["y", "z"])], errors.InvalidArgument, "no output"),
    ],
)
def test_what_is_no_list_of_names(
    session: sardonyx.InferenceSession, names: Any, kind: Any, text: str, again: bool
) -> None:
    if again:
        session.run(["y"], {"x": _X})
        session.run(["y", "z", "v"], {"x": _X})
    value = sardonyx.OrtValue.ortvalue_from_numpy(_X)
    with pytest.raises(kind, match=text):
        session.run(names, {"x": _X})
    with pytest.raises(kind, match=text):
        session.run_with_ort_values(names, {"x": value})
    _check(session.run(None, {"x": _X}), "yzv")


def test_so_many_lists_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_names, "_MOST_KNOWN", 2)
    names = output_names.OutputNames(["y", "z", "v"])
    for _ in range(2):
        assert [names.places(x) for x in (["v"], ["y", "z", "v"], ["z"])] == [[2], None, [1]]
    assert names.known(["v"]) == ([2],)
    assert names.known(["y", "z", "v"]) == (None,)
    assert names.known(["z"]) is None
