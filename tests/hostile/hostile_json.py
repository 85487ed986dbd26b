"""JSON that nobody expects: a document of which parts become something else, or its text does."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

from tests.hostile import raw

#: An escape sequence, line ends, bidirectional marks, no width, and half a surrogate pair.
BAD_TEXT = "\x1b[31m\r\nFORGED \u202e\u200b\x9b\u2028"
#: What is put in place of a part.
STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 2, 63, 2**31, -(2**31), 2**63, 2**64, 10**400, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "0", "1", "-1", "9" * 40, "1e9", "true", " 1", "\u0661", "x",
    "a" * 5000, BAD_TEXT, "../../precious", "/dev/zero", "\0", "\ud800", [], [[]], {}, {"": {}},
    [0] * 3000, {BAD_TEXT: BAD_TEXT}, "CPUExecutionProvider", "CUDAExecutionProvider",
]  # fmt: skip


def changed(rnd: random.Random, document: Any) -> Any:
    """A document, some parts of which are gone, doubled, renamed or something else."""
    document = copy.deepcopy(document)
    for _ in range(rnd.choice((1, 1, 1, 2, 4))):
        document = _changed_once(rnd, document)
    return document


def _changed_once(rnd: random.Random, document: Any) -> Any:
    places = [(None, None), *_places(document)]
    holder, key = rnd.choice(places)
    strange = copy.deepcopy(rnd.choice(STRANGE))
    if holder is None:
        return strange if rnd.random() < 0.1 else document
    how = rnd.random()
    if how < 0.6:
        holder[key] = strange
    elif how < 0.7:
        del holder[key]
    elif how < 0.8:
        deep = holder[key]
        for _ in range(rnd.choice((1, 3, 70))):
            deep = [deep] if rnd.random() < 0.5 else {"a": deep}
        holder[key] = deep
    elif isinstance(holder, dict):
        holder[rnd.choice(("x", BAD_TEXT, key.upper(), key + " ", "_" + key))] = holder[key]
    else:
        holder += [holder[key]] * rnd.choice((1, 100))
    return document


def _places(part: Any) -> list[tuple[Any, Any]]:
    if not isinstance(part, (dict, list)):
        return []
    keys: Any = part if isinstance(part, dict) else range(len(part))
    found = [(part, key) for key in keys]
    return found + [place for key in keys for place in _places(part[key])]


def text_of(rnd: random.Random, document: Any) -> bytes:
    """The text of a document, mostly with changes of either kind."""
    how = rnd.random()
    if how < 0.6:
        document = changed(rnd, document)
    data = json.dumps(document, ensure_ascii=rnd.random() < 0.5).encode(errors="surrogatepass")
    if how < 0.55 or how > 0.95:
        return data
    if how < 0.85:
        return raw.mutate(rnd, data)[0]
    deep = rnd.choice((65, 1000, 200_000))
    return rnd.choice((
        b"[" * deep, b'{"a":' * deep, b"[" * deep + b"]" * deep, b'"' * deep, b"9" * deep,
        b"\xef\xbb\xbf" + data, data.decode(errors="replace").encode("utf-16"), b"", b"\0" * 9,
        data + data, data.replace(b"{", b'{"format":1,', 1), data[: len(data) // 2],
    ))  # fmt: skip
