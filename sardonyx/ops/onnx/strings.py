"""Operators on strings (ONNX operator spec): what looks inside a string runs on the host."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base.dtypes import BOOL, FLOAT, INT32, INT64, STRING
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.host.text import compile_pattern
from sardonyx.ops.core.object_values import call_for_tensor, calls_for_tensors
from sardonyx.ops.core.registry import op
from sardonyx.tensor.host import Result, host_call
from sardonyx.tensor.language import broadcast_shapes
from sardonyx.tensor.tensor import Tensor

_STRINGS = ("strings",)


def text(value: str | bytes) -> str:
    """A string attribute; bytes that are no UTF-8 keep their values."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def check_strings(operator: str, *inputs: Tensor) -> None:
    """Refuse inputs that are no strings.

    Raises:
        InvalidGraph: One is not.
    """
    for x in inputs:
        if x.dtype is not STRING:
            what = "An input has the wrong type"
            expected, got = STRING.type_text, x.dtype.type_text
            raise InvalidGraph(message(operator, what, expected=expected, got=got))


@op("StringConcat", 20, flags=_STRINGS)
def string_concat_20(x: Tensor, y: Tensor) -> Tensor:
    """Strings put together, with broadcasting."""
    check_strings("StringConcat", x, y)
    shape = broadcast_shapes(x.shape, y.shape)
    return host_call("text.concat", [x, y], [Result(STRING, shape)])[0]


@op("StringSplit", 20, flags=_STRINGS)
def string_split_20(
    x: Tensor, *, delimiter: str | bytes = "", maxsplit: int | None = None
) -> tuple[Tensor, Tensor]:
    """Parts of strings along a new axis, and how many there are."""
    check_strings("StringSplit", x)
    parts, counts = calls_for_tensors(
        "text.split", [x], [(STRING, (*x.shape, None)), (INT64, x.shape)],
        delimiter=text(delimiter), maxsplit=maxsplit,
    )  # fmt: skip
    return parts, counts


@op("StringNormalizer", 10, flags=_STRINGS)
def string_normalizer_10(
    x: Tensor,
    *,
    case_change_action: str | bytes = "NONE",
    is_case_sensitive: int = 0,
    locale: str | bytes = "",
    stopwords: Sequence[str | bytes] = (),
) -> Tensor:
    """Strings without stop words, in upper or lower case; `locale` changes nothing in Unicode."""
    check_strings("StringNormalizer", x)
    case = text(case_change_action)
    if case not in ("NONE", "LOWER", "UPPER"):
        raise InvalidGraph(
            message("StringNormalizer", "Bad case_change_action", expected="NONE, LOWER or UPPER",
                    got=case)
        )  # fmt: skip
    if x.rank not in (1, 2) or (x.rank == 2 and isinstance(x.shape[0], int) and x.shape[0] != 1):
        what = "The input has the wrong shape"
        raise InvalidGraph(
            message("StringNormalizer", what, expected="[C] or [1, C]", got=str(list(x.shape)))
        )
    return call_for_tensor(
        "text.normalise", [x], STRING, (*x.shape[:-1], None), case=case,
        is_case_sensitive=bool(is_case_sensitive), stopwords=tuple(map(text, stopwords)),
    )  # fmt: skip


@op("RegexFullMatch", 20, flags=_STRINGS)
def regex_full_match_20(x: Tensor, *, pattern: str | bytes = "") -> Tensor:
    """Whether whole strings match a pattern of RE2's syntax."""
    check_strings("RegexFullMatch", x)
    compile_pattern(text(pattern), "RegexFullMatch")
    return host_call("text.full_match", [x], [Result(BOOL, x.shape)], pattern=text(pattern))[0]


@op("TfIdfVectorizer", 9, flags=_STRINGS)
def tf_idf_vectorizer_9(
    x: Tensor,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str | bytes,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[str | bytes] = (),
    weights: Sequence[float] = (),
) -> Tensor:
    """How often n-grams of a pool occur in each row."""
    where, weighting = "TfIdfVectorizer", text(mode)
    if weighting not in ("TF", "IDF", "TFIDF"):
        raise InvalidGraph(message(where, "Bad mode", expected="TF, IDF or TFIDF", got=weighting))
    pool: tuple[str, ...] | tuple[int, ...] = tuple(map(text, pool_strings)) or tuple(pool_int64s)
    if bool(pool_strings) == bool(pool_int64s):
        raise InvalidGraph(message(where, "One of pool_strings and pool_int64s must be given"))
    if x.dtype not in ((STRING,) if pool_strings else (INT32, INT64)):
        what = "The input has another type than the pool"
        raise InvalidGraph(message(where, what, got=x.dtype.type_text))
    if x.rank not in (1, 2):
        raise InvalidGraph(
            message(where, "The input has the wrong shape", expected="[C] or [N, C]",
                    got=str(list(x.shape)))
        )  # fmt: skip
    _check_pool(pool, ngram_counts, ngram_indexes, weights, max_gram_length)
    if not 1 <= min_gram_length <= max_gram_length or max_skip_count < 0:
        raise InvalidGraph(message(where, "The lengths of n-grams, or max_skip_count, are wrong"))
    width = max(ngram_indexes) + 1
    return host_call(
        "ngrams.count", [x], [Result(FLOAT, (*x.shape[:-1], width))], pool=pool,
        starts=tuple(ngram_counts), indexes=tuple(ngram_indexes),
        weights=tuple(weights) or None, mode=weighting, shortest=min_gram_length,
        longest=max_gram_length, skips=max_skip_count, width=width,
    )[0]  # fmt: skip


#: More columns are no vector that anyone can use.
_MOST_COLUMNS = 1 << 31


def _check_pool(
    pool: Sequence[object],
    starts: Sequence[int],
    indexes: Sequence[int],
    weights: Sequence[float],
    longest: int,
) -> None:
    where = "TfIdfVectorizer"
    ends = (*starts[1:], len(pool))
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    if not starts or starts[0] or any(n < 0 or n % k for k, n in enumerate(lengths, 1)):
        raise InvalidGraph(message(where, "ngram_counts does not fit the pool", got=str(starts)))
    count = sum(n // k for k, n in enumerate(lengths, 1))
    if len(indexes) != count or (weights and len(weights) != count):
        what = "ngram_indexes or weights do not fit the pool"
        raise InvalidGraph(message(where, what, expected=str(count), got=str(len(indexes))))
    if not indexes or not 0 <= min(indexes) <= max(indexes) < _MOST_COLUMNS:
        raise InvalidGraph(message(where, "An element of ngram_indexes is out of range"))
    if longest > len(starts):
        what = "There are no n-grams of max_gram_length in the pool"
        raise InvalidGraph(
            message(where, what, expected=f"at most {len(starts)}", got=str(longest))
        )


@op("Tokenizer", 1, domain="com.microsoft", flags=_STRINGS)
def tokenizer_1(
    x: Tensor,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str | bytes,
    separators: Sequence[str | bytes] | None = None,
    tokenexp: str | bytes | None = None,
) -> Tensor:
    """Tokens of each string along a new axis: [C] gives [C, D], [N, C] gives [N, C, D]."""
    where = "Tokenizer"
    check_strings(where, x)
    if x.rank not in (1, 2):
        raise InvalidGraph(
            message(where, "The input has the wrong shape", expected="[C] or [N, C]",
                    got=str(list(x.shape)))
        )  # fmt: skip
    if bool(separators) == bool(tokenexp):
        raise InvalidGraph(message(where, "One of separators and tokenexp must be given"))
    if mincharnum < 1:
        raise InvalidGraph(message(where, "mincharnum must be positive", got=str(mincharnum)))
    expression = text(tokenexp) if tokenexp else None
    listed = tuple(map(text, separators or ()))
    for pattern in (*listed, expression or ""):
        compile_pattern(pattern, where)
    return call_for_tensor(
        "text.tokenise", [x], STRING, (*x.shape, None), expression=expression, separators=listed,
        mark=bool(mark), least=mincharnum, padding=text(pad_value),
    )  # fmt: skip
