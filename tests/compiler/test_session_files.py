"""A model's file that becomes another one while it is read."""

import os

import numpy as np
import pytest

from sardonyx.compiler import build
from sardonyx.compiler.drive import create_engine
from tests.support.session import model_of

_TEXT = "g (float[n] x) => (float[n] y) { y = Mul(x, factor) }"


def _write(path, factor):
    path.write_bytes(model_of(_TEXT, {"factor": np.float32(factor)}).SerializeToString())


def _point(link, name):
    spare = link.with_suffix(".new")
    spare.symlink_to(name)
    spare.replace(link)


def _replaced(folder):
    os.replace(folder / "two", folder / "one")


def _pointed_elsewhere(folder):
    _point(folder / "model", "two")


@pytest.mark.parametrize("change", [_replaced, _pointed_elsewhere])
def test_what_was_read_is_not_cached_as_what_was_asked_for(change, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SARDONYX_CACHE", str(tmp_path / "cache"))
    for name, factor in (("one", 1), ("two", 2)):
        _write(tmp_path / name, factor)
    model, x = tmp_path / "model", np.ones(3, np.float32)
    _point(model, "one")
    load = build.load

    def late(*arguments, **options):
        change(tmp_path)
        monkeypatch.setattr(build, "load", load)
        return load(*arguments, **options)

    monkeypatch.setattr(build, "load", late)
    create_engine(str(model))
    assert "replaced while it was read" in caplog.text
    for kind in ("session", "plan", "read"):
        assert not [*(tmp_path / "cache").glob(f"{kind}/*")]
    if change is _pointed_elsewhere:
        _point(model, "one")
        np.testing.assert_array_equal(create_engine(str(model)).run([x]), [x])
    engine = create_engine(str(model))
    again = create_engine(str(model))
    assert "from cache" in again.timings
    np.testing.assert_array_equal(engine.run([x]), again.run([x]))
