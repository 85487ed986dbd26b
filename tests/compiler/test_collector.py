"""While a session is made, Python's cyclic collector rests; see `base.collector`."""

import gc

import numpy as np
import pytest

from sardonyx.base.errors import SardonyxError
from sardonyx.compiler import drive
from sardonyx.compiler.options import EngineOptions
from sardonyx.kernel.expressions.expression import Expression
from sardonyx.kernel.language.builder import Builder
from sardonyx.kernel.language.program import Let
from tests.support.session import model_of

TEXT = "g (float[40, 64] x) => (float[40, 64] y) { a = MatMul (x, w) y = Softmax (a) }"


@pytest.fixture
def during(tmp_path, monkeypatch):
    """Collections that began while a session was made."""
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path))
    inside, found = [False], []

    def note(phase, info):
        if phase == "start" and inside[0]:
            found.append(info["generation"])

    guarded = drive.guarded

    def watched(*arguments):
        inside[0] = True
        try:
            return guarded(*arguments)
        finally:
            inside[0] = False

    monkeypatch.setattr(drive, "guarded", watched)

    def make(data):
        return drive.create_engine(data, EngineOptions())

    gc.callbacks.append(note)
    yield make, found
    gc.callbacks.remove(note)


@pytest.mark.parametrize("taken_from", ["nothing", "kernels", "plan", "session"])
def test_no_collection_while_a_session_is_made(taken_from, during, tmp_path):
    make, found = during
    model = model_of(TEXT, {"w": np.ones((64, 64), np.float32)}, 18).SerializeToString()
    gone = {"kernels": ("session", "plan"), "plan": ("session",), "session": ()}
    if taken_from != "nothing":
        make(model)
        for kind in gone[taken_from]:
            for path in (tmp_path / kind).iterdir():
                path.unlink()
    found.clear()
    make(model)
    assert gc.isenabled()
    assert found == []


def test_the_collector_goes_on_after_an_error(during):
    make, _ = during
    with pytest.raises(SardonyxError):
        make(b"no model")
    assert gc.isenabled()


WINDOW = """g (float[1, 32, 20, 20] x) => (float[1, 32, 20, 20] y) {
    a = Conv <group = 32, pads = [1, 1, 1, 1]> (x, w) s = Sigmoid (a) y = Mul (a, s) }"""
GATHER = """g (float[9, 64] x, int64[5] i) => (float[5, 64] y) { a = Gather (x, i) y = Erf (a) }"""
MEAN = """g (float[40, 65] x) => (float[40, 65] y) {
    m = ReduceMean <axes = [1], keepdims = 1> (x) y = Sub (x, m) }"""


@pytest.mark.parametrize(
    ("text", "weight"),
    [(TEXT, (64, 64)), (WINDOW, (32, 1, 3, 3)), (GATHER, None), (MEAN, None)],
    ids=["product and softmax", "window", "gather", "mean"],
)
def test_what_writes_kernels_is_gone_without_the_collector(text, weight):
    weights = {} if weight is None else {"w": np.ones(weight, np.float32)}
    model = model_of(text, weights, 17).SerializeToString()
    options = EngineOptions(use_cache=False)
    kinds = (Builder, Expression, Let)
    assert drive.create_engine(model, options)  # functions of all models are kept by the process
    gc.collect()
    gc.disable()
    try:
        before = {id(x) for x in gc.get_objects() if isinstance(x, kinds)}
        made = drive.create_engine(model, options)
        left = [x for x in gc.get_objects() if isinstance(x, kinds) and id(x) not in before]
    finally:
        gc.enable()
    assert made is not None
    assert left == []
