"""BifurcationDetector against plain Python, and against onnxruntime if it is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base.errors import InvalidArgument, InvalidGraph
from tests.support.contrib import check_contrib, contrib_model

OPERATOR = "BifurcationDetector"
RANDOM = np.random.default_rng(11)


def _detected(
    source: list[int], current: list[int], previous: int, predicted: list[int] | None,
    least: int, most: int,
) -> tuple[list[int], int]:  # fmt: skip
    """By loops over what the schema says; the place is the end of the n-gram, as it is run."""
    tokens = list(current)
    for k, token in enumerate(predicted or ()):
        tokens.append(token)
        if previous + k >= len(source) or source[previous + k] != token:
            break
    for size in range(least, min(most, len(tokens)) + 1):
        last = tokens[-size:]
        found = [k for k in range(len(source) - size + 1) if source[k : k + size] == last]
        if len(found) == 1:
            return tokens, found[0] + size
    return tokens, -1


def _check(
    source: list[int], current: list[int], previous: int, predicted: list[int] | None,
    least: int = 1, most: int = 3, symbolic: bool = True,
) -> None:  # fmt: skip
    tokens, place = _detected(source, current, previous, predicted, least, most)
    inputs = [np.array(x, np.int64) for x in (source, current, [previous])]
    if predicted is not None:
        inputs.append(np.array(predicted, np.int64))
    facts = {"min_ngram_size": least, "max_ngram_size": most}
    check_contrib(OPERATOR, inputs, facts, [tokens, [place]], symbolic=symbolic)


SOURCE = [1, 5, 3, 4, 2]


@pytest.mark.parametrize(
    "source, current, previous, predicted",
    [
        (SOURCE, [3], 0, None),
        (SOURCE, [3], 0, [1, 5, 3, 4, 2, 7]),  # all of it holds
        (SOURCE, [3], 1, [5, 9, 4, 2, 7]),
        (SOURCE, [3], 0, [9, 9, 9, 9, 9, 9]),
        (SOURCE, [], 0, [1, 5, 3, 4, 2, 8]),
        (SOURCE, [], 0, None),
        (SOURCE, [4], 5, [6]),  # nothing is left to compare
        ([], [3], 0, [6]),
        ([], [], 0, None),
        ([1, 2, 1, 2, 3], [1, 2], 0, None),  # twice
        ([1, 2, 1, 2, 3], [9, 3], 0, None),
        ([1, 2, 1, 2, 3, 4, 1, 2, 3], [4, 1, 2, 3], 0, None),  # longer than any n-gram
        ([1, 1, 1], [1, 1, 1], 0, None),  # once, but as three
    ],
)
@pytest.mark.parametrize("symbolic", [True, False])
def test_known(
    source: list[int], current: list[int], previous: int, predicted: list[int] | None,
    symbolic: bool,
) -> None:  # fmt: skip
    _check(source, current, previous, predicted, symbolic=symbolic)


def test_one_session_at_many_sizes() -> None:
    empty = np.zeros(0, np.int64)
    model = contrib_model(
        OPERATOR, [empty, empty, empty, empty], {"min_ngram_size": 2}, 2, (), True
    )
    session = sardonyx.InferenceSession(model.SerializeToString())
    for _ in range(60):
        source = RANDOM.integers(0, 4, RANDOM.integers(0, 12)).tolist()
        current = RANDOM.integers(0, 4, RANDOM.integers(0, 4)).tolist()
        previous = int(RANDOM.integers(0, len(source) + 1))
        predicted = [*source[previous:], 3]
        for k in range(len(predicted)):
            predicted[k] = predicted[k] if RANDOM.random() < 0.8 else 9
        given = (source, current, [previous], predicted)
        feeds = {f"x{k}": np.array(x, np.int64) for k, x in enumerate(given)}
        tokens, place = session.run(None, feeds)
        want = _detected(source, current, previous, predicted, 2, 3)
        assert (tokens.tolist(), place.tolist()) == (want[0], [want[1]])


@pytest.mark.parametrize(
    "previous, predicted, facts, text",
    [
        ([0], [1, 2], {}, "one more than the rest"),
        ([6], [1], {}, "size 6. Expected from 0 to 5"),
        ([-1], [1], {}, "size -1. Expected from 0"),
        ([0, 1], None, {}, "A scalar is needed"),
        ([0], None, {"min_ngram_size": 0}, "at least one"),
        ([0], None, {"min_ngram_size": 4}, "at most the largest"),
        ([0], [[1]], {}, "pred_tokens must have one axis"),
    ],
)
def test_bad_graphs_and_feeds(
    previous: list[int], predicted: Any, facts: dict[str, int], text: str
) -> None:
    given = [SOURCE, [3], previous, *([] if predicted is None else [predicted])]
    arrays = [np.array(x, np.int64) for x in given]
    model = contrib_model(OPERATOR, arrays, facts, 2)
    with pytest.raises((InvalidArgument, InvalidGraph), match=text):
        sardonyx.InferenceSession(model.SerializeToString()).run(
            None, {f"x{k}": x for k, x in enumerate(arrays)}
        )
