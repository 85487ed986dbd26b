"""What a notebook shows of sessions and values; nothing of a model or of data is markup."""

from __future__ import annotations

import json
import pickle
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.providers import cuda_is_missing
from tests.support.fake_driver import FakeDriver
from tests.support.fake_provider import installed
from tests.support.session import model_of

EVIL = "<script>alert('x')</script>&"
KNOWN = {"p", "b", "br", "table", "thead", "tbody", "tr", "th", "td", "pre"}


class _Reader(HTMLParser):
    """Text of a page; unknown tags and attributes are errors, and so is what is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.open, self.rows = "", list[str](), 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in KNOWN
        assert {name for name, _ in attrs} <= {"style"}
        self.rows += tag == "tr"
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(shown: Any) -> _Reader:
    reader = _Reader()
    reader.feed(shown._repr_html_())
    reader.close()
    assert not reader.open
    return reader


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    model = model_of("g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }")
    model.graph.name = model.graph.input[0].name = model.graph.node[0].input[0] = EVIL
    model.graph.node[0].name = EVIL
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = EVIL
    return ort.InferenceSession(model.SerializeToString())


def test_session(session: ort.InferenceSession) -> None:
    found = read(session)
    assert found.rows == 3
    assert found.text.count(EVIL) == 3
    for text in ("tensor(float)", f"{EVIL} x 3", "1 kernel for 1 node", "CPUExecutionProvider"):
        assert text in found.text


def test_explain(session: ort.InferenceSession) -> None:
    found = session.explain()
    assert EVIL in found
    shown = read(found).text
    assert shown == found.replace("\n", "", 1)
    assert pickle.loads(pickle.dumps(found)) == found


def test_memory(session: ort.InferenceSession) -> None:
    session.run(None, {EVIL: np.zeros((200, 3), np.float32)})
    found = session.memory()
    assert json.loads(json.dumps(found)) == found
    shown = read(found)
    assert shown.rows == len([v for v in found.values() if v != {}]) + 1
    assert "GB" in shown.text
    nested = type(found)({"devices": {EVIL: {"held_bytes": 1500, "largest": [EVIL]}}})
    shown = read(nested)
    assert EVIL in shown.text
    assert "1.5 kB" in shown.text
    assert shown.rows == 5


@pytest.mark.parametrize(
    ("held", "texts"),
    [
        (
            np.arange(6, dtype=np.int16).reshape(2, 3),
            ["tensor(int16), 2 x 3, 12 bytes, cpu", "5]]"],
        ),
        (np.zeros((1000, 1000), np.float32), ["1000 x 1000, 4.0 MB", "..."]),
        (np.array(2.5), ["tensor(double), scalar", "2.5"]),
        (np.array([EVIL], object), ["tensor(string), 1", EVIL]),
        (np.array(["a" * 9999], object), ["..."]),
        ([np.zeros(2, np.float32)], ["seq(tensor(float)), 1 items"]),
        ({EVIL: 1.0}, ["map("]),
        (None, ["optional()"]),
    ],
)
def test_values(held: Any, texts: list[str]) -> None:
    shown = ort.OrtValue(held)._repr_html_()
    assert len(shown) < 6000
    found = read(ort.OrtValue(held)).text
    for text in texts:
        assert text in found


@pytest.mark.skipif(not cuda_is_missing(), reason="the GPU's driver is loaded already")
def test_values_of_a_device_are_not_copied() -> None:
    with installed() as driver:
        assert isinstance(driver, FakeDriver)
        value = ort.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32), "cuda", 0)
        before = dict(driver.copied)
        assert "tensor(float), 3, 12 bytes, cuda:0" in read(value).text
        assert driver.copied == before
