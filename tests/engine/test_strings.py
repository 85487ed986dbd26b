"""Strings: moved and compared natively, looked into on the host; maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support.session import model_of

#: About what no target changes.
pytestmark = pytest.mark.once


def _texts(*items: Any) -> Any:
    return np.array(items, object)


def onnx_model(text: str, opset: int = 20) -> bytes:
    model = model_of(f"g {text}", opset=opset)
    for domain, version in (("ai.onnx.ml", 3), ("com.microsoft", 1)):
        model.opset_import.append(onnx.helper.make_opsetid(domain, version))
    written: bytes = model.SerializeToString()
    return written


def _session(text: str, opset: int = 20) -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(onnx_model(text, opset))


_ABC = _texts("a", "bb", "ß∂", "", "a")

#: Graph, pairs of feeds and results.
CASES: dict[str, tuple[str, list[tuple[dict[str, Any], list[Any]]]]] = {
    "gathered, joined, compared": (
        "(string[N] x, int64[K] k) => (string[M] y, bool[M] e) { a = Gather(x, k)"
        ' b = Constant<value_strings=["a", "new"]>() y = Concat<axis=0>(a, b)'
        ' c = Constant<value_string="a">() e = Equal(y, c) }',
        [
            (
                {"x": _ABC, "k": np.array([2, 0, -1, 3])},
                [_texts("ß∂", "a", "a", "", "a", "new"), np.array([0, 1, 1, 0, 1, 0], bool)],
            ),
            (
                {"x": _ABC[:1], "k": np.zeros(0, np.int64)},
                [_texts("a", "new"), np.array([1, 0], bool)],
            ),
        ],
    ),
    "shapes of strings": (
        "(string[N,2] x) => (string[2,N] t, string[A,B] p, int64[2] s) { t = Transpose(x)"
        " w = Constant<value_ints=[0, 1, 0, 0]>() p = Pad(x, w) s = Shape(x) }",
        [
            (
                {"x": _texts("a", "b", "c", "d").reshape(2, 2)},
                [
                    _texts("a", "c", "b", "d").reshape(2, 2),
                    _texts("", "a", "b", "", "c", "d").reshape(2, 3),
                    np.array([2, 2]),
                ],
            )
        ],
    ),
    "chosen by a condition": (
        "(string[N] x, string[N] y) => (string[N] z) { e = Equal(x, y)"
        ' d = Constant<value_string="differs">() z = Where(e, x, d) }',
        [({"x": _texts("u", "v"), "y": _texts("u", "w")}, [_texts("u", "differs")])],
    ),
    "put together": (
        "(string[N,1] x, string[M] y) => (string[N,M] z) { z = StringConcat(x, y) }",
        [
            (
                {"x": _texts("a", "b").reshape(2, 1), "y": _texts("", "1", "∂")},
                [_texts("a", "a1", "a∂", "b", "b1", "b∂").reshape(2, 3)],
            ),
            ({"x": _texts().reshape(0, 1), "y": _texts("q")}, [_texts().reshape(0, 1)]),
        ],
    ),
    "taken apart": (
        "(string[N] x) => (string[N,W] p, int64[N] n, int64[2] s)"
        ' { p, n = StringSplit<delimiter=",">(x)'
        " s = Shape(p) }",
        [
            (
                {"x": _texts("a,b", "", "c,,d")},
                [
                    _texts("a", "b", "", "", "", "", "c", "", "d").reshape(3, 3),
                    np.array([2, 1, 3]),
                    np.array([3, 3]),
                ],
            ),
            ({"x": _texts()}, [_texts().reshape(0, 0), np.zeros(0, np.int64), np.array([0, 0])]),
        ],
    ),
    "words": (
        "(string[N] x) => (string[N,W] p) { p, n = StringSplit<maxsplit=1>(x) }",
        [({"x": _texts(" a  b c ", "d")}, [_texts("a", "b c ", "d", "").reshape(2, 2)])],
    ),
    "normalised": (
        '(string[N] x) => (string[M] y) { y = StringNormalizer<case_change_action="UPPER",'
        ' stopwords=["the"]>(x) }',
        [
            ({"x": _texts("The", "cat", "straße")}, [_texts("CAT", "STRASSE")]),
            ({"x": _texts("the")}, [_texts("")]),
        ],
    ),
    "matched": (
        '(string[N] x) => (bool[N] y) { y = RegexFullMatch<pattern="[a-z]+@[a-z]+">(x) }',
        [({"x": _texts("a@b", "a@b!", "")}, [np.array([1, 0, 0], bool)])],
    ),
    "numbers to text and back": (
        "(float[N] x, int64[N] k) => (string[N] s, string[N] t, float[N] y, int64[N] z)"
        " { s = Cast<to=8>(x) t = Cast<to=8>(k) y = Cast<to=1>(s) z = Cast<to=7>(t) }",
        [
            (
                {
                    "x": np.array([1.5, np.nan, -np.inf, 0.1], np.float32),
                    "k": np.array([-3, 0, 2**62, 7]),
                },
                [
                    _texts("1.5", "NaN", "-INF", "0.1"),
                    _texts("-3", "0", str(2**62), "7"),
                    np.array([1.5, np.nan, -np.inf, 0.1], np.float32),
                    np.array([-3, 0, 2**62, 7]),
                ],
            )
        ],
    ),
    "carried through a loop": (
        "(string s, int64 n) => (string r) { r = Loop(n, , s)"
        " <body = b (int64 i, bool ci, string t)"
        ' => (bool c, string u) { c = Identity(ci) x = Constant<value_string="+">()'
        " u = StringConcat(t, x) }> }",
        [
            ({"s": _texts("a")[0], "n": np.int64(n)}, [np.array("a" + "+" * n, object)])
            for n in (3, 0)
        ],
    ),
    "counted": (
        "(string[N,W] x) => (float[N,3] y) { y = TfIdfVectorizer<max_gram_length=2,"
        ' min_gram_length=1, max_skip_count=0, mode="TFIDF", ngram_counts=[0, 2],'
        ' ngram_indexes=[0, 2, 1], pool_strings=["a", "b", "a", "b"],'
        " weights=[1.0, 2.0, 4.0]>(x) }",
        [
            (
                {"x": _texts("a", "b", "a", "c", "b", "b").reshape(2, 3)},
                [np.array([[2, 4, 2], [0, 0, 4]], np.float32)],
            ),
            ({"x": _texts().reshape(2, 0)}, [np.zeros((2, 3), np.float32)]),
            ({"x": _texts().reshape(0, 2)}, [np.zeros((0, 3), np.float32)]),
        ],
    ),
    "tokens that match": (
        "(string[N] x) => (string[N,W] y) { y = com.microsoft.Tokenizer<mark=0, mincharnum=2,"
        ' pad_value="#", tokenexp="[a-z0-9]+">(x) }',
        [
            (
                {"x": _texts("ab c d1", "", "xyz")},
                [_texts("ab", "d1", "#", "#", "xyz", "#").reshape(3, 2)],
            ),
            ({"x": _texts("", "?")}, [_texts().reshape(2, 0)]),
        ],
    ),
    "tokens between separators, marked": (
        "(string[N] x) => (string[N,W] y) { y = com.microsoft.Tokenizer<mark=1, mincharnum=1,"
        ' pad_value="", separators=["-+", ", "]>(x) }',
        [
            (
                {"x": _texts("a--b, c", "d")},
                [_texts("\x02", "a", "b", "c", "\x03", "\x02", "d", "\x03", "", "").reshape(2, 5)],
            )
        ],
    ),
    "characters": (
        "(string[1,N] x) => (string[1,N,W] y) { y = com.microsoft.Tokenizer<mark=0, mincharnum=1,"
        ' pad_value="#", separators=[""]>(x) }',
        [({"x": _texts("ß∂", "a").reshape(1, 2)}, [_texts("ß", "∂", "a", "#").reshape(1, 2, 2)])],
    ),
    "maps of rows": (
        "(float[N,2] x) => (seq(map(string, float)) y)"
        ' { y = ai.onnx.ml.ZipMap<classlabels_strings=["u", "v"]>(x) }',
        [
            (
                {"x": np.array([[1, 2], [3, 4]], np.float32)},
                [[{"u": 1.0, "v": 2.0}, {"u": 3.0, "v": 4.0}]],
            ),
            ({"x": np.zeros((0, 2), np.float32)}, [[]]),
        ],
    ),
    "a map as a row": (
        "(map(string, float) x) => (float[1,3] y)"
        ' { y = ai.onnx.ml.DictVectorizer<string_vocabulary=["a", "b", "c"]>(x) }',
        [
            ({"x": {"c": 2.0, "a": 1.5}}, [np.array([[1.5, 0, 2]], np.float32)]),
            ({"x": {}}, [np.zeros((1, 3), np.float32)]),
            ({"x": {"z": 9.0, "b": 4.0}}, [np.array([[0, 4, 0]], np.float32)]),
        ],
    ),
    "a map by its keys": (
        "(map(int64, float) x) => (float[1,A] d, string[1,4] s)"
        ' { d = ai.onnx.ml.CastMap(x) s = ai.onnx.ml.CastMap<map_form="SPARSE", max_map=4,'
        ' cast_to="TO_STRING">(x) }',
        [
            (
                {"x": {2: 5.0, 0: 1.0}},
                [np.array([[1, 5]], np.float32), _texts("1.0", "", "5.0", "").reshape(1, 4)],
            )
        ],
    ),
}


def _equal(got: Any, want: Any) -> None:
    if isinstance(want, list):
        assert got == want
        return
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", CASES)
def test_strings(name: str) -> None:
    text, runs = CASES[name]
    for _ in range(2):  # compiled, then from the cache
        session = _session(text)
        for feeds, want in runs:
            for mine, theirs in zip(session.run(None, feeds), want, strict=True):
                _equal(mine, theirs)


@pytest.mark.parametrize(
    "fed",
    [
        ["a", "b"],
        ("a", "b"),
        np.array(["a", "b"]),
        np.array([b"a", b"b"]),
        np.array([b"a", b"b"]).astype("V1"),
        _texts("a", "x", "b", "x")[::2],
    ],
    ids=["list", "tuple", "unicode", "bytes", "raw bytes", "strided"],
)
def test_ways_to_feed_strings(fed: Any) -> None:
    (got,) = _session("(string[N] x) => (string[N] y) { y = Identity(x) }").run(None, {"x": fed})
    _equal(got, _texts("a", "b"))


class _Named(str):
    def __str__(self) -> str:
        return "its name"


class _Unwritable:
    def __init__(self, text: Any = None) -> None:
        self.text = text

    def __str__(self) -> str:
        if self.text is None:
            raise ValueError("no")
        text: str = self.text
        return text


#: An element of an array of objects -> its text, as onnxruntime 1.31.1 takes it.
WRITTEN: list[tuple[Any, str]] = [
    (float("nan"), "nan"), (None, "None"), (3, "3"), (True, "True"), (2.5, "2.5"),
    (np.float32(1.5), "1.5"), (np.int64(4), "4"), (np.True_, "True"), (b"xy", "b'xy'"),
    (np.bytes_(b"xy"), "b'xy'"), (np.datetime64("NaT"), "NaT"), (1 + 2j, "(1+2j)"),
    ((1, 2), "(1, 2)"), (np.array([1, 2]), "[1 2]"), (np.array(1), "1"), (np.str_("q"), "q"),
    (_Named("q"), "its name"), ("a\0", "a\0"), ("", ""),
]  # fmt: skip


def _column() -> Any:
    column = np.empty(len(WRITTEN), object)
    for k, (element, _) in enumerate(WRITTEN):
        column[k] = element
    return column


def _spread(column: Any) -> Any:
    wide = np.empty((len(column), 2), object)
    wide[:, 0] = column
    return wide[:, 0]


class _Series:
    """What a column of pandas is to this engine: it gives an array."""

    def __init__(self, column: Any) -> None:
        self.column = column

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.column


#: How a column is fed.
GIVEN: dict[str, Any] = {
    "array": lambda x: x,
    "not side by side": _spread,
    "backwards": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "list": list,
    "series": _Series,
    "value": sardonyx.OrtValue.ortvalue_from_numpy,
}


@pytest.mark.parametrize("given", GIVEN)
def test_elements_that_are_no_strings_are_written_out(given: str) -> None:
    session = _session("(string[N] x) => (string[N] y) { y = Identity(x) }")
    fed, want = GIVEN[given](_column()), [text for _, text in WRITTEN]
    assert session.run(None, {"x": fed})[0].tolist() == want
    assert session.run(["y"], {"x": fed})[0].tolist() == want  # as a run that was made before


def test_other_ways_to_feed_what_is_no_string() -> None:
    text = "(string[N] x) => (string[N] y) { y = Identity(x) }"
    session, want = _session(text), [text for _, text in WRITTEN]
    value = sardonyx.OrtValue.ortvalue_from_numpy(_column())
    (got,) = session.run_with_ort_values(None, {"x": value})
    assert got.numpy().tolist() == want
    for bind in ("bind_cpu_input", "bind_ortvalue_input"):
        binding = session.io_binding()
        getattr(binding, bind)("x", _column() if bind == "bind_cpu_input" else value)
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        assert binding.copy_outputs_to_cpu()[0].tolist() == want
    model = sardonyx.load(onnx_model(text))
    assert np.asarray(model(x=_column())).tolist() == want
    assert np.asarray(model(_column())).tolist() == want
    sequence = _session(
        "(seq(string[N]) x) => (string[N] y) <int64 i = {0}> { y = SequenceAt(x, i) }"
    )
    assert sequence.run(None, {"x": [_column()]})[0].tolist() == want
    assert sequence.run(None, {"x": [list(_column())]})[0].tolist() == want


@pytest.mark.parametrize(
    ("fed", "text"), [(np.array(None, object), "None"), (np.array(3, object), "3"), (b"x", "x")]
)
def test_one_element_that_is_no_string(fed: Any, text: str) -> None:
    session = _session("(string x) => (string y) { y = Identity(x) }")
    assert session.run(None, {"x": fed})[0].item() == text


def test_matrices_of_what_is_no_string() -> None:
    session = _session("(string[N,M] x) => (string[N,M] y) { y = Identity(x) }")
    x = np.array([["a", None, 3], [4.5, b"q", True]], object)
    for fed in (x, x.T, x[:, ::2], x[::-1]):
        want = [[str(element) for element in row] for row in fed.tolist()]
        assert session.run(None, {"x": fed})[0].tolist() == want


def test_what_is_written_out_counts_as_memory() -> None:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.memory_limit_bytes", str(16 << 20))
    model = onnx_model("(string[N] x) => (string[N] y) { y = Identity(x) }")
    session = sardonyx.InferenceSession(model, options)
    with pytest.raises(errors.OutOfMemory):
        session.run(None, {"x": np.array([_Unwritable("x" * (1 << 20))] * 100, object)})


#: Graph, feeds, error, part of the message.
REFUSED: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "numbers for strings": (
        "(string[N] x) => (string[N] y) { y = Identity(x) }",
        {"x": np.zeros(2)},
        errors.InvalidArgument,
        "string",
    ),
    "one number for strings": (
        "(string x) => (string y) { y = Identity(x) }",
        {"x": 3},
        errors.InvalidArgument,
        "Expected string, got int64",
    ),
    "an element that cannot be written out": (
        "(string[N] x) => (string[N] y) { y = Identity(x) }",
        {"x": _texts("a", _Unwritable())},
        errors.InvalidArgument,
        r"\[input x\] str\(\) of an element, a _Unwritable, fails: no",
    ),
    "an element whose text is none": (
        "(string[N] x) => (string[N] y) { y = Identity(x) }",
        {"x": _texts("a", _Unwritable(3))},
        errors.InvalidArgument,
        "returned non-string",
    ),
    "digits that only Python groups": (
        "(string[N] x) => (int32[N] y) { y = Cast<to=6>(x) }",
        {"x": _texts("1", "1_0")},
        errors.RuntimeException,
        "'1_0' is no number",
    ),
    "digits of another script": (
        "(string[N] x) => (float[N] y) { y = Cast<to=1>(x) }",
        {"x": _texts("\u0661")},
        errors.RuntimeException,
        "is no number",
    ),
    "text that is no number": (
        "(string[N] x) => (float[N] y) { y = Cast<to=1>(x) }",
        {"x": _texts("1", "one")},
        errors.RuntimeException,
        "'one' is no number",
    ),
    "map with keys of another type": (
        "(map(int64, float) x) => (float[1,A] y) { y = ai.onnx.ml.CastMap(x) }",
        {"x": {"b": 1.0}},
        errors.InvalidArgument,
        "map",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_feeds(name: str) -> None:
    text, feeds, error, part = REFUSED[name]
    session = _session(text)
    for _ in range(2):
        with pytest.raises(error, match=part):
            session.run(None, feeds)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("(string[N] x) => (string[N] y) { y = Add(x, x) }", "The type of its input A"),
        ('(string[N] x) => (bool[N] y) { y = RegexFullMatch<pattern="(">(x) }', "pattern"),
        (
            "(string[N] x) => (string[N,W] y) { y = com.microsoft.Tokenizer<mark=0, mincharnum=1,"
            ' pad_value="">(x) }',
            "separators and tokenexp",
        ),
        ("(float[N] x) => (string[N] y) { y = StringConcat(x, x) }", "The type of its input X"),
        (
            "(string[N] x) => (float[N] y) { y = TfIdfVectorizer<max_gram_length=1,"
            ' min_gram_length=1, max_skip_count=0, mode="TF", ngram_counts=[0],'
            ' ngram_indexes=[0, 1], pool_strings=["a"]>(x) }',
            "ngram_indexes",
        ),
    ],
)
def test_refused_models(text: str, part: str) -> None:
    with pytest.raises(errors.SardonyxError, match=part):
        _session(text)


def test_types_of_the_face() -> None:
    session = _session(CASES["maps of rows"][0])
    assert [(o.type, o.shape) for o in session.get_outputs()] == [
        ("seq(map(string,tensor(float)))", [])
    ]
    session = _session(CASES["a map as a row"][0])
    assert session.get_inputs()[0].type == "map(string,tensor(float))"


def test_the_host_reads_what_lies_backwards() -> None:
    text = "(string[A,B] x) => (float[A,B] y) { r = Slice(x, s, e, a, s) y = Cast<to=1>(r) }"
    weights = {"s": np.array([-1, -1]), "e": np.array([-9, -9]), "a": np.array([0, 1])}
    session = sardonyx.InferenceSession(model_of(f"g {text}", weights, 20).SerializeToString())
    (y,) = session.run(None, {"x": np.array([["1", "2", "3"], ["4", "5", "6"]], object)})
    np.testing.assert_array_equal(y, [[6, 5, 4], [3, 2, 1]])
