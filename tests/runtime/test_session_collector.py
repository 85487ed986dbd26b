"""While a session is made, Python's cyclic collector rests; see `base.collector`."""

import gc

import numpy as np
import pytest

from sardonyx.base.errors import SardonyxError
from sardonyx.runtime import session
from sardonyx.runtime.engine_options import EngineOptions
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

    guarded = session.guarded

    def watched(*arguments):
        inside[0] = True
        try:
            return guarded(*arguments)
        finally:
            inside[0] = False

    monkeypatch.setattr(session, "guarded", watched)

    def make(data):
        return session.create_engine(data, EngineOptions())

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
