"""Sequences, optionals and strings."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.operator_fuzz.draw import STRING, TYPES, Array, Draw
from tests.operator_fuzz.instance import Const, Instance, makes
from tests.operator_fuzz.oracle import Use, reference


def _item_type(draw: Draw, number: int = 0) -> Any:
    """A type of the items of a sequence that the schema allows."""
    allowed = {t for c in draw.schema.type_constraints for t in c.allowed_type_strs}
    names = [n for n in TYPES if f"seq({n})" in allowed]
    return TYPES[draw.pick(sorted(names))]


def _items(draw: Draw, dtype: Any, *, same_shape: bool = False, least: int = 1) -> list[Array]:
    shape = draw.shape(1, 3, low=1, high=3)
    count = draw.integer(least, 4)
    shapes = [shape if same_shape else [draw.size(0, 3) for _ in shape] for _ in range(count)]
    return [draw.values(s, dtype) for s in shapes]


@makes("SequenceConstruct", exact=True, own=True)
def constructed(draw: Draw) -> Instance:
    return Instance(list(_items(draw, draw.type_of("T"))))


@makes("SequenceEmpty", exact=True, own=True)
def empty(draw: Draw) -> Instance:
    return Instance([], {"dtype": draw.maybe(_item_type(draw))})


@makes("SequenceLength", exact=True, own=True)
def length(draw: Draw) -> Instance:
    return Instance([_items(draw, _item_type(draw))])


@makes("SequenceAt", exact=True, own=True)
def item(draw: Draw) -> Instance:
    dtype = _item_type(draw)
    items = _items(draw, dtype)
    at = draw.integer(-len(items), len(items) - 1)
    return Instance([items, np.asarray(at, draw.type_of("I"))], {}, [dtype])


@makes("SequenceErase", exact=True, own=True)
def erased(draw: Draw) -> Instance:
    items = _items(draw, _item_type(draw))
    at = np.asarray(draw.integer(-len(items), len(items) - 1), draw.type_of("I"))
    return Instance([items, draw.maybe(at, 0.7)])


@makes("SequenceInsert", exact=True, own=True)
def inserted(draw: Draw) -> Instance:
    dtype = _item_type(draw)
    items = _items(draw, dtype)
    more = draw.values([draw.size(0, 3)] * items[0].ndim, dtype)
    at = np.asarray(draw.integer(-len(items), len(items)), draw.type_of("I"))
    return Instance([items, more, draw.maybe(at, 0.7)])


@reference("SequenceErase")
def erase(use: Use, items: list[Array], at: Any = None) -> list[list[Array]]:
    kept = list(items)
    del kept[-1 if at is None else int(at)]
    return (kept,)  # type: ignore[return-value]


@reference("SequenceInsert")
def insert(use: Use, items: list[Array], more: Array, at: Any = None) -> Any:
    kept = list(items)
    place = len(kept) if at is None else int(at)
    kept.insert(place + len(kept) if place < 0 else place, more)
    return (kept,)


@makes("ConcatFromSequence", exact=True, own=True)
def joined(draw: Draw) -> Instance:
    dtype = _item_type(draw)
    new = draw.maybe(draw.integer(0, 1))
    items = _items(draw, dtype, same_shape=True)
    rank = items[0].ndim + (new or 0)
    return Instance([items], {"axis": draw.axis(rank), "new_axis": new}, [dtype])


@makes("SplitToSequence", exact=True, own=True)
def split(draw: Draw) -> Instance:
    shape = draw.shape(1, 3, low=1)
    axis = draw.axis(len(shape))
    dtype = draw.type_of("T")
    kind = draw.integer(0, 2)
    attributes: dict[str, Any] = {"axis": draw.maybe(axis) if axis == 0 else axis}
    lengths: Any = None
    if kind == 0:
        attributes["keepdims"] = draw.maybe(draw.integer(0, 1))
    elif kind == 1:
        lengths = Const(np.asarray(draw.integer(1, 3), draw.type_of("I")))
    else:
        sizes = [draw.integer(1, 3) for _ in range(draw.integer(1, 3))]
        shape[axis] = sum(sizes)
        lengths = np.array(sizes, draw.type_of("I"))
    return Instance([draw.values(shape, dtype), lengths], attributes, ["object"])


@reference("SplitToSequence")
def split_up(use: Use, x: Array, lengths: Any = None) -> Any:
    axis = use.attributes["axis"]
    if lengths is None:
        parts = np.split(x, x.shape[axis], axis)
        return ([p if use.attributes["keepdims"] else p.squeeze(axis) for p in parts],)
    if lengths.ndim:
        return (np.split(x, np.cumsum(lengths)[:-1], axis),)
    return (np.split(x, range(int(lengths), x.shape[axis], int(lengths)), axis),)


_TEXTS = np.array(
    ["", "a", "a,b", "b,,a", "Hello World", " x  y ", "ÄÖ ß", "a1", "the end", "42"], object
)


def _texts(draw: Draw, shape: list[int]) -> Array:
    return draw.contents.choice(_TEXTS, size=tuple(shape)).astype(object)


@makes("StringConcat", exact=True, own=True)
def concatenated(draw: Draw) -> Instance:
    return Instance([_texts(draw, s) for s in draw.operands(2, 0, 4)])


@makes("StringSplit", exact=True, own=True)
def split_text(draw: Draw) -> Instance:
    x = _texts(draw, draw.shape(0, 3, low=1))
    delimiter = draw.pick([None, ",", "a", ""])
    return Instance([x], {"delimiter": delimiter, "maxsplit": draw.maybe(draw.integer(0, 2), 0.4)})


@reference("StringSplit")
def split_texts(use: Use, x: Array) -> Any:
    delimiter = use.attributes.get("delimiter") or None
    most = use.attributes.get("maxsplit")
    parts = [s.split(delimiter, -1 if most is None else most) for s in x.reshape(-1)]
    counts = np.array([len(p) for p in parts], np.int64).reshape(x.shape)
    width = max(map(len, parts), default=0)
    rows = [p + [""] * (width - len(p)) for p in parts]
    return np.array(rows, object).reshape(*x.shape, width), counts


@makes("StringNormalizer", exact=True, own=True)
def normalised(draw: Draw) -> Instance:
    shape = [draw.size(1, 5)] if draw.chance(0.6) else [1, draw.size(1, 5)]
    attributes = {
        "case_change_action": draw.maybe(draw.pick(["NONE", "LOWER", "UPPER"])),
        "is_case_sensitive": draw.maybe(draw.integer(0, 1)),
        "stopwords": draw.maybe(["a", "hello world"]),
    }
    return Instance([_texts(draw, shape)], attributes)


@reference("StringNormalizer")
def normalise(use: Use, x: Array) -> Array:
    """Stop words go, then the case changes; of no words one empty string is left."""
    g = use.attributes
    stop = [s.decode() for s in g.get("stopwords", ())]
    exact = g["is_case_sensitive"]
    stop = stop if exact else [s.lower() for s in stop]
    kept = [s for s in x.reshape(-1) if (s if exact else s.lower()) not in stop]
    change = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}[g["case_change_action"]]
    found = np.array([change(s) for s in kept] or [""], object)
    return found.reshape(1, -1) if x.ndim == 2 else found


@makes("RegexFullMatch", exact=True, own=True)
def matched(draw: Draw) -> Instance:
    pattern = draw.pick([r"a.*", r"[a-z ]+", r"\d+", r"", r"(a|b),?.*", r"\w+ \w+"])
    return Instance([_texts(draw, draw.shape(0, 3))], {"pattern": pattern})


@reference("RegexFullMatch")
def matches(use: Use, x: Array) -> Array:
    pattern = re.compile(use.attributes["pattern"], re.ASCII)
    return np.array([bool(pattern.fullmatch(s)) for s in x.reshape(-1)], bool).reshape(x.shape)


@makes("TfIdfVectorizer", exact=True, own=True)
def counted(draw: Draw) -> Instance:
    dtype = draw.type_of("T")
    pool = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]
    shape = [draw.size(1, 8)] if draw.chance(0.5) else [draw.size(1, 3), draw.size(1, 8)]
    numbers = draw.contents.integers(2, 9, tuple(shape))
    attributes: dict[str, Any] = {
        "mode": draw.pick(["TF", "IDF", "TFIDF"]),
        "min_gram_length": draw.integer(1, 2),
        "max_gram_length": 2,
        "max_skip_count": draw.integer(0, 2),
        "ngram_counts": [0, 4],
        "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
        "weights": draw.maybe([1.0, 2.0, 0.5, 3.0, 1.5, 2.5, 4.0]),
    }
    if dtype == STRING:
        attributes["pool_strings"] = [f"w{n}" for n in pool]
        x = np.array([f"w{n}" for n in numbers.reshape(-1)], object).reshape(shape)
        return Instance([x], attributes)
    attributes["pool_int64s"] = pool
    return Instance([numbers.astype(dtype)], attributes)


@reference("TfIdfVectorizer")
def count_grams(use: Use, x: Array) -> Array:
    """Grams of neighbours, and of items that lie up to `max_skip_count` others apart."""
    g = use.attributes
    pool = [p.decode() for p in g.get("pool_strings", ())] or list(g["pool_int64s"])
    first = g["ngram_counts"][1]
    grams = [(p,) for p in pool[:first]]
    grams += [tuple(pool[k : k + 2]) for k in range(first, len(pool), 2)]
    places = dict(zip(grams, g["ngram_indexes"], strict=True))
    weights = dict(zip(g["ngram_indexes"], g.get("weights", [1.0] * len(grams)), strict=True))
    rows = x.reshape(-1, x.shape[-1]).tolist()
    result = np.zeros((len(rows), max(g["ngram_indexes"]) + 1))
    for n, row in enumerate(rows):
        for size in range(g["min_gram_length"], g["max_gram_length"] + 1):
            for step in range(1, g["max_skip_count"] + 2 if size > 1 else 2):
                for k in range(len(row) - (size - 1) * step):
                    place = places.get(tuple(row[k : k + (size - 1) * step + 1 : step]))
                    if place is not None:
                        result[n, place] += 1
    factors = np.array([weights[k] for k in range(result.shape[1])])
    if g["mode"] != "TF":
        result = (result if g["mode"] == "TFIDF" else (result > 0)) * factors
    return result.reshape(*x.shape[:-1], -1).astype(np.float32)
