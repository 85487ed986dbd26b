"""What runs on the host, in Python, with data and attributes that were made to hurt."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.base.errors import SardonyxError, TimedOut
from tests.support.session import model_of


@pytest.fixture(autouse=True)
def _soon() -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < 20


def session(text: str, limit_bytes: int = 64 << 20, opset: int = 20) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.memory_limit_bytes", str(limit_bytes))
    model = model_of(f"g {text}", opset=opset)
    for domain, version in (("ai.onnx.ml", 3), ("com.microsoft", 1)):
        model.opset_import.append(onnx.helper.make_opsetid(domain, version))
    return sardonyx.InferenceSession(model.SerializeToString(), options)


def words(*items: str) -> Any:
    return np.array(items, object)


def bigrams(skips: int) -> str:
    return f"""(int32[N] x) => (float[A] y) {{ y = TfIdfVectorizer<max_gram_length=2,
        min_gram_length=2, max_skip_count={skips}, mode="TF", ngram_counts=[0, 0],
        ngram_indexes=[0, 1], pool_int64s=[1, 2, 3, 4]>(x) }}"""


@pytest.mark.parametrize("skips", [3, 1 << 40, (1 << 63) - 2])
def test_words_further_apart_than_a_row_is_long(skips: int) -> None:
    x = np.array([1, 2, 9, 2, 3], np.int32)
    assert session(bigrams(skips)).run(None, {"x": x})[0].tolist() == [2, 0]


def test_a_time_limit_ends_a_function_of_the_host() -> None:
    with pytest.raises(TimedOut):
        session(bigrams(1 << 40)).run(None, {"x": np.ones(200_000, np.int32)}, timeout=0.2)


#: An input that stands for one number, and has none or several.
SCALARS = [
    ("CumSum(x, n)", "int64", np.float32),
    ("CumProd(x, n)", "int64", np.float32),
    ("Dropout(x, f, b)", "float", np.float32),
]


@pytest.mark.parametrize("declared", ["N", "0", "2"])
@pytest.mark.parametrize(("text", "kind", "dtype"), SCALARS, ids=[s[0] for s in SCALARS])
def test_one_number_that_is_not_there(text: str, kind: str, dtype: Any, declared: str) -> None:
    name = "n" if kind == "int64" else "f"
    flag = "b = Constant<value=bool {1}>()" if "b)" in text else ""
    graph = f"(float[3] x, {kind}[{declared}] {name}) => (float[A] y) {{ {flag} y = {text} }}"
    count = int(declared) if declared.isdigit() else 0
    given = np.zeros(count, np.int64 if kind == "int64" else np.float32)
    with pytest.raises(SardonyxError, match="scalar is needed"):
        session(graph, opset=26).run(None, {"x": np.ones(3, dtype), name: given})
