"""What runs on the host, in Python, with data and attributes that were made to hurt."""

from __future__ import annotations

import struct
import time
import warnings
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.base.errors import OutOfMemory, SardonyxError, TimedOut
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


#: Attributes of a Tokenizer, a text, and what onnxruntime makes of it.
TOKENS = [
    ('tokenexp="a|ab"', "ab abc", ["ab", "ab"]),
    ('tokenexp="abc?|bcde", mincharnum=4', "abcde", ["bcde"]),
    ('tokenexp="a*"', "abab", ["a", "a"]),
    ('tokenexp="[a-z]+"', "the cat", ["the", "cat"]),
    ('separators=["X", "XY"]', "aXYb", ["a", "Yb"]),
    ('separators=["X|XY"]', "aXYb", ["a", "b"]),
    ('separators=["XY", "aX"]', "aXY", ["a"]),
    ('separators=["X*"]', "abXb", []),
    ('separators=["^a", "X"]', "aXbXc", ["b", "c"]),
    ('separators=["X"]', "aXXb", ["a", "b"]),
    ('separators=[""]', "abc", ["a", "b", "c"]),
]


@pytest.mark.parametrize(("attributes", "text", "tokens"), TOKENS, ids=[t[0] for t in TOKENS])
def test_tokens(attributes: str, text: str, tokens: list[str]) -> None:
    least = "" if "mincharnum" in attributes else ", mincharnum=1"
    graph = f"""(string[N] x) => (string[N,W] y) {{
        y = com.microsoft.Tokenizer<mark=0{least}, pad_value="#", {attributes}>(x) }}"""
    assert session(graph).run(None, {"x": words(text)})[0].tolist() == [tokens]


def test_patterns_that_would_not_end() -> None:
    text = words("a" * 20_000)
    match = '(string[N] x) => (bool[N] y) { y = RegexFullMatch<pattern="(a*)*b">(x) }'
    assert session(match).run(None, {"x": text})[0].tolist() == [False]
    tokens = """(string[N] x) => (string[N,W] y) {
        y = com.microsoft.Tokenizer<mark=0, mincharnum=1, pad_value="", tokenexp="(a|aa)+b">(x) }"""
    assert session(tokens).run(None, {"x": text})[0].shape == (1, 0)


#: A graph that makes much out of little, and what it is fed.
MUCH: list[tuple[str, dict[str, Any]]] = [
    ("(string[N] x) => (string[N,W] y) { y, n = StringSplit(x) }",
     {"x": words(*["a"] * 50_000, "b " * 50_000)}),
    ("(string[N,1] x, string[M] y) => (string[N,M] z) { z = StringConcat(x, y) }",
     {"x": words(*["a" * 1000] * 700).reshape(-1, 1), "y": words(*"b" * 700)}),
    ("""(string[N] x) => (string[N,W] y) { y = com.microsoft.Tokenizer<mark=0, mincharnum=1,
        pad_value="#", separators=[" "]>(x) }""",
     {"x": words(*["a"] * 50_000, "b " * 50_000)}),
    ("(float[N,0] x, int64 l) => (int64 y) "
     "{ s = SplitToSequence<axis=0>(x, l) y = SequenceLength(s) }",
     {"x": np.ones((1 << 40, 0), np.float32), "l": np.array(1)}),
    ("""(int64[N] x) => (float[A] y) { y = TfIdfVectorizer<max_gram_length=1, min_gram_length=1,
        max_skip_count=0, mode="IDF", ngram_counts=[0], ngram_indexes=[2000000000],
        pool_int64s=[1]>(x) }""", {"x": np.ones(3, np.int64)}),
]  # fmt: skip


def picture(width: int, height: int) -> Any:
    """The bytes of a PNG whose head says so; there are no pixels in it."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    parts = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d))
             for k, d in chunks]  # fmt: skip
    return np.frombuffer(b"\x89PNG\r\n\x1a\n" + b"".join(parts), np.uint8)


@pytest.mark.parametrize(
    ("width", "height", "outcome"),
    [(9000, 9000, OutOfMemory), (12000, 12000, OutOfMemory), (1 << 30, 1 << 30, (0, 0, 3)),
     (10, 10, (0, 0, 3))],
)  # fmt: skip
def test_pictures_that_unfold(width: int, height: int, outcome: Any) -> None:
    pytest.importorskip("PIL")
    made = session("(uint8[N] x) => (uint8[H,W,C] y) { y = ImageDecoder(x) }")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(outcome, tuple):
            assert made.run(None, {"x": picture(width, height)})[0].shape == outcome
        else:
            with pytest.raises(outcome):
                made.run(None, {"x": picture(width, height)})


@pytest.mark.parametrize(("text", "feeds"), MUCH, ids=[m[0][:60] for m in MUCH])
def test_much_out_of_little_is_refused_before_it_is_made(text: str, feeds: dict[str, Any]) -> None:
    with pytest.raises(SardonyxError, match="bytes of memory are needed"):
        session(text).run(None, feeds)
