"""Operators that generate text, against searches in NumPy, and onnxruntime if it is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.base import errors
from tests.support.generation import (
    WORDS,
    Encoded,
    Gpt,
    Search,
    generating_model,
    one_number,
)
from tests.support.tolerances import assert_near

#: About what no target changes.
pytestmark = pytest.mark.once

_INT32, _FLOAT = 6, 1
_PROMPT = np.array([[3, 4, 5], [0, 2, 9]], np.int32)
_SEARCH = Search(_PROMPT, longest=9, end=1, padding=0)
_SOME = (np.arange(WORDS) % 4 != 3).astype(np.int32)
_FIRST = np.stack([_SOME, 1 - _SOME])


def _inputs(search: Search, fixed: bool, source: Any = None, **more: Any) -> dict[str, Any]:
    """What the operators have in common, as `generating_model` takes it."""
    beams = {
        "num_beams": (one_number(search.beams), fixed),
        "num_return_sequences": (one_number(search.returned), fixed),
        "length_penalty": (one_number(search.length_penalty, np.float32), fixed),
    }
    return {
        "input_ids": (search.prompt if source is None else source, False),
        "max_length": (one_number(search.longest), fixed),
        "min_length": (one_number(search.least), fixed),
        **(beams if search.beams else {}),
        "repetition_penalty": (one_number(search.repetition, np.float32), fixed),
        "vocab_mask": (search.vocabulary, False),
        "prefix_vocab_mask": (search.first_vocabulary, False),
        **{name: (x, False) for name, x in more.items()},
    }


def _attributes(search: Search, **more: Any) -> dict[str, Any]:
    return {
        "eos_token_id": search.end, "pad_token_id": search.padding,
        "no_repeat_ngram_size": search.ngram, **more,
    }  # fmt: skip


def _run(
    op_type: str, inputs: Mapping[str, Any], attributes: Mapping[str, Any],
    outputs: Mapping[str, int], engine: bool = True,
) -> list[Any]:  # fmt: skip
    """Our outputs, after those of the first have been compared with onnxruntime's."""
    model = generating_model(op_type, inputs, attributes, outputs).SerializeToString()
    feeds = {n: x for n, (x, fixed) in inputs.items() if x is not None and not fixed}
    ours = sardonyx.InferenceSession(model).run(None, feeds)
    if engine:
        try:
            import onnxruntime
        except ImportError:
            return list(ours)
        onnxruntime.set_default_logger_severity(4)
        theirs = onnxruntime.InferenceSession(model).run(None, feeds)
        np.testing.assert_array_equal(ours[0], theirs[0])
    return list(ours)


def _compare(got: list[Any], expected: tuple[Any, Any, Any], search: Search) -> None:
    sequences, scores, steps = expected
    np.testing.assert_array_equal(got[0], sequences)
    assert_near(got[1], scores, "float: many steps")
    assert got[2].shape == steps.shape
    assert_near(got[2][0], steps[0], "float: many steps")


@pytest.mark.parametrize(
    ("changes", "fixed", "early"),
    [
        ({"beams": 3, "returned": 2}, True, False),
        ({"beams": 1}, True, False),
        ({"beams": 4, "returned": 4, "length_penalty": 0.0, "padding": 10}, False, True),
        ({"beams": 2, "least": 6, "length_penalty": 2.0}, False, False),
        ({"beams": 3, "repetition": 1.4, "ngram": 2}, True, True),
        ({"beams": 2, "ngram": 3, "vocabulary": _SOME, "first_vocabulary": _FIRST}, False, False),
        ({"beams": 2, "longest": 4}, True, False),
    ],
    ids=str,
)  # fmt: skip
def test_beam_search(changes: dict[str, Any], fixed: bool, early: bool) -> None:
    search, gpt = replace(_SEARCH, early=early, **changes), Gpt(len(changes), 0.7)
    attributes = _attributes(search, decoder=gpt.graph(), early_stopping=int(early))
    outputs = {"sequences": _INT32, "sequences_scores": _FLOAT, "scores": _FLOAT}
    got = _run("BeamSearch", _inputs(search, fixed), attributes, outputs)
    _compare(got, search.beam(gpt.logits((search.padding != _PROMPT).astype(np.int64))), search)


@pytest.mark.parametrize("fixed", [True, False])
def test_one_session_searches_at_several_shapes(fixed: bool) -> None:
    search, gpt = replace(_SEARCH, beams=2), Gpt(3, 0.7)
    inputs = _inputs(search, fixed)
    model = generating_model(
        "BeamSearch", inputs, _attributes(search, decoder=gpt.graph()), {"sequences": _INT32}
    )
    session = sardonyx.InferenceSession(model.SerializeToString())
    for rows, start in ((2, 3), (1, 5), (3, 2)):
        prompt = np.random.default_rng(rows).integers(2, WORDS, (rows, start)).astype(np.int32)
        now = replace(search, prompt=prompt, beams=2 if fixed else rows)
        feeds = {
            n: x for n, (x, known) in _inputs(now, fixed).items() if x is not None and not known
        }
        (got,) = session.run(None, feeds)
        np.testing.assert_array_equal(got, now.beam(gpt.logits(np.ones(prompt.shape)))[0])


@pytest.mark.parametrize("room", [False, True])
def test_a_decoder_of_its_own_for_the_prompt(room: bool) -> None:
    search, gpt = replace(_SEARCH, beams=2, returned=2), Gpt(5, 0.7, room)
    graphs = {"decoder": gpt.graph(), "init_decoder": gpt.graph()}
    outputs = {"sequences": _INT32, "sequences_scores": _FLOAT, "scores": _FLOAT}
    got = _run(
        "BeamSearch", _inputs(search, True), _attributes(search, **graphs), outputs, not room
    )
    _compare(got, search.beam(gpt.logits((_PROMPT != 0).astype(np.int64))), search)


def test_a_decoder_of_fused_operators() -> None:
    search, gpt = replace(_SEARCH, beams=3, returned=2), Gpt(6, 0.5, width=32)
    graphs = {"decoder": gpt.fused(False), "init_decoder": gpt.fused(True)}
    outputs = {"sequences": _INT32, "sequences_scores": _FLOAT, "scores": _FLOAT}
    inputs = _inputs(search, True)
    got = _run("BeamSearch", inputs, _attributes(search, **graphs), outputs, engine=False)
    _compare(got, search.beam(gpt.logits((_PROMPT != 0).astype(np.int64))), search)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_beam_search_after_an_encoder(whole: bool, masked: bool) -> None:
    source = np.array([[3, 4, 5, 7], [0, 2, 9, 0]], np.int32)
    # Padding before the text does not count; after it, it does.
    mask = np.array([[1, 1, 0, 1], [0, 1, 1, 1]]) if masked else np.array([[1] * 4, [0, 1, 1, 1]])
    model = Encoded(1, 0.7, whole=whole)
    search = replace(_SEARCH, prompt=np.full((2, 1), 2, np.int32), beams=3, returned=2)
    attributes = _attributes(
        search, decoder=model.decoder(), encoder=model.encoder(), model_type=1,
        decoder_start_token_id=2,
    )  # fmt: skip
    given = mask.astype(np.int32) if masked else None
    outputs = {"sequences": _INT32, "sequences_scores": _FLOAT, "scores": _FLOAT}
    inputs = _inputs(search, True, source, attention_mask=given)
    got = _run("BeamSearch", inputs, attributes, outputs)
    _compare(got, search.beam(model.logits(source, mask)), search)


_FRAMES = np.random.default_rng(0).standard_normal((2, 8, 5)).astype(np.float32)


@pytest.mark.parametrize("op_type", ["BeamSearch", "WhisperBeamSearch"])
def test_whisper(op_type: str) -> None:
    model = Encoded(2, 0.6, features=True)
    prompt = np.array([[2, 3, 4], [2, 5, 4]], np.int32)
    search = replace(_SEARCH, prompt=prompt, beams=3, returned=2)
    attributes = _attributes(
        search, decoder=model.decoder(), encoder=model.encoder(), model_type=2,
        decoder_start_token_id=2,
    )  # fmt: skip
    outputs = {"sequences": _INT32, "sequences_scores": _FLOAT, "scores": _FLOAT}
    inputs = _inputs(search, True, _FRAMES, attention_mask=None, decoder_input_ids=prompt)
    if op_type == "WhisperBeamSearch":
        search = replace(search, temperature=1.5)
        nothing = dict.fromkeys(("logits_processor", "cross_qk_layer_head", "extra"), (None, False))
        inputs |= {**nothing, "temperature": (one_number(1.5, np.float32), False)}
    got = _run(op_type, inputs, attributes, outputs)
    _compare(got, search.beam(model.logits(_FRAMES, np.ones((2, 5)))), search)


def test_whisper_says_how_likely_silence_is() -> None:
    model = Encoded(2, 0.6, features=True)
    search = replace(_SEARCH, prompt=np.full((2, 1), 2, np.int32), beams=2)
    attributes = _attributes(
        search, decoder=model.decoder(), encoder=model.encoder(), decoder_start_token_id=2,
        no_speech_token_id=7,
    )  # fmt: skip
    names = ["sequences", "a", "b", "c", "silent"]
    made = generating_model(
        "WhisperBeamSearch", _inputs(search, True, _FRAMES), attributes, dict.fromkeys(names, 1)
    )
    del made.graph.output[1:4]
    made.graph.output[0].type.tensor_type.elem_type = _INT32
    made.graph.node[0].output[3] = ""
    _, silent = sardonyx.InferenceSession(made.SerializeToString()).run(
        None, {"input_ids": _FRAMES}
    )
    logits = model.logits(_FRAMES, np.ones((2, 5)))(search.prompt)
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert_near(silent, chances[:, 7], "float: functions")


#: Found by onnxruntime, and checked by hand against the rules: seed, batch's best sequences.
_TIMESTAMPS = [
    (0, [[2, 3, 9, 4] + [0] * 10, [2, 3, 9, 4, 10, 10] + [0] * 8]),
    (10, [[2, 3, 10, 2, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0], [2, 3, 10] + [1] * 11]),
    (20, [[2, 3, 2, 8, 1] + [0] * 9, [2, 3, 2, 8, 1, 1] + [0] * 8]),
]


@pytest.mark.parametrize(("seed", "expected"), _TIMESTAMPS)
def test_timestamps_of_whisper(seed: int, expected: list[list[int]]) -> None:
    model = Encoded(seed, 0.5, features=True)
    prompt = np.array([[2, 3], [2, 3]], np.int32)
    search = replace(_SEARCH, prompt=prompt, longest=14, end=5, beams=2)
    attributes = _attributes(
        search, decoder=model.decoder(), encoder=model.encoder(), decoder_start_token_id=2,
        translate_token_id=3, transcribe_token_id=4, start_of_lm_token_id=6,
        no_timestamps_token_id=7, beginning_timestamp_token_id=8,
    )  # fmt: skip
    inputs = _inputs(search, True, _FRAMES, attention_mask=None, decoder_input_ids=prompt)
    inputs["logits_processor"] = one_number(1), True
    (got,) = _run("WhisperBeamSearch", inputs, attributes, {"sequences": _INT32})
    assert got[:, 0].tolist() == expected


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("fixed", [True, False])
def test_other_decoders_have_no_processor(kind: int, fixed: bool) -> None:
    search, gpt = replace(_SEARCH, beams=2), Gpt(2, 0.7)
    inputs = _inputs(search, True, attention_mask=None, decoder_input_ids=None)
    inputs["logits_processor"] = one_number(kind), fixed
    outputs = {"sequences": _INT32, "sequences_scores": _FLOAT, "scores": _FLOAT}
    got = _run("BeamSearch", inputs, _attributes(search, decoder=gpt.graph()), outputs)
    _compare(got, search.beam(gpt.logits((_PROMPT != 0).astype(np.int64))), search)


@pytest.mark.parametrize("op_type", ["BeamSearch", "WhisperBeamSearch"])
def test_other_processors_change_nothing(op_type: str) -> None:
    model = Encoded(2, 0.6, features=True)
    prompt = np.array([[2, 3, 4], [2, 5, 4]], np.int32)
    search = replace(_SEARCH, prompt=prompt, beams=3)
    attributes = _attributes(
        search, decoder=model.decoder(), encoder=model.encoder(), model_type=2,
        decoder_start_token_id=2,
    )  # fmt: skip
    inputs = _inputs(search, True, _FRAMES, attention_mask=None, decoder_input_ids=prompt)
    inputs["logits_processor"] = one_number(2), True
    outputs = {"sequences": _INT32, "sequences_scores": _FLOAT, "scores": _FLOAT}
    got = _run(op_type, inputs, attributes, outputs)
    _compare(got, search.beam(model.logits(_FRAMES, np.ones((2, 5)))), search)


# -- one sequence -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "mask"),
    [
        ({}, None),
        ({"repetition": 1.3, "ngram": 2, "least": 6}, None),
        ({"vocabulary": _SOME, "first_vocabulary": _FIRST}, None),
        ({}, np.array([[1, 1, 0], [0, 1, 1]], np.int32)),
    ],
    ids=str,
)
def test_greedy_search(changes: dict[str, Any], mask: Any) -> None:
    search, gpt = replace(_SEARCH, beams=0, **changes), Gpt(2, 0.5)
    inputs = _inputs(search, False, attention_mask=mask)
    attributes = _attributes(search, decoder=gpt.graph())
    # onnxruntime leaves what follows the end of all sequences as it finds it in memory.
    (got,) = _run("GreedySearch", inputs, attributes, {"sequences": _INT32}, engine=False)
    counted = (_PROMPT != 0).astype(np.int64)
    np.testing.assert_array_equal(got, search.greedy(gpt.logits(counted, mask)))


def test_greedy_search_after_an_encoder() -> None:
    source = np.array([[3, 4, 5, 7], [6, 2, 9, 8]], np.int32)
    model = Encoded(3, 0.7)
    search = replace(_SEARCH, prompt=np.full((2, 1), 2, np.int32), beams=0)
    attributes = _attributes(
        search, decoder=model.decoder(), encoder=model.encoder(), model_type=1,
        decoder_start_token_id=2,
    )  # fmt: skip
    inputs = _inputs(search, True, source)
    (got,) = _run("GreedySearch", inputs, attributes, {"sequences": _INT32}, engine=False)
    np.testing.assert_array_equal(got, search.greedy(model.logits(source, np.ones((2, 4)))))


_DRAWS = 3000


@pytest.mark.parametrize(
    ("attributes", "seed"),
    [
        ({"top_p": 1.0}, None),
        ({"top_p": 0.6, "filter_value": -50.0}, 7),
        ({"top_p": 0.3, "temperature": 1.7, "min_tokens_to_keep": 3}, None),
        ({"top_p": 0.0}, None),
        ({"top_p": 0.5, "custom": 1, "presence_penalty": 0.7, "min_tokens_to_keep": 5}, None),
    ],
    ids=str,
)
def test_sampling(attributes: dict[str, Any], seed: int | None) -> None:
    gpt = Gpt(3, 0.5)
    prompt = np.tile(np.array([[3, 4, 5]], np.int32), (_DRAWS, 1))
    search = replace(_SEARCH, prompt=prompt, longest=4, end=-1, padding=11, beams=0)
    presence = np.tile(1 - _SOME, (_DRAWS, 1)) if "custom" in attributes else None
    given = None if seed is None else one_number(seed)
    inputs = _inputs(search, True, attention_mask=None, presence_mask=presence, seed=given)
    model = generating_model(
        "Sampling", inputs, _attributes(search, decoder=gpt.graph(), **attributes),
        {"sequences": _INT32, "filtered_logits": _FLOAT},
    )  # fmt: skip
    session = sardonyx.InferenceSession(model.SerializeToString())
    feeds = {n: x for n, (x, fixed) in inputs.items() if x is not None and not fixed}
    drawn, filtered = session.run(None, feeds)
    again = session.run(None, feeds)[0]
    assert np.array_equal(drawn, again) == (seed is not None or attributes["top_p"] == 0)
    scores = gpt.logits(np.ones((1, 3)))(prompt[:1])[0] / attributes.get("temperature", 1.0)
    scores = scores - attributes.get("presence_penalty", 0.0) * (presence is not None) * (1 - _SOME)
    chances = np.exp(scores) / np.exp(scores).sum()
    order = np.argsort(-chances)
    better = np.concatenate([[0], np.cumsum(chances[order])[:-1]])
    least = 1 if "custom" in attributes else max(attributes.get("min_tokens_to_keep", 0), 1)
    kept = order[(better < attributes["top_p"]) | (np.arange(WORDS) < least)]
    expected = np.full(WORDS, attributes.get("filter_value", -1e20))
    expected[kept] = scores[kept]
    assert_near(filtered[0], expected, "float: layers without cancellation")
    wanted = np.where(np.isin(np.arange(WORDS), kept), chances, 0)
    found = np.bincount(drawn[:, 3], minlength=WORDS) / _DRAWS
    # Five times the largest standard deviation of a share.
    np.testing.assert_allclose(found, wanted / wanted.sum(), atol=5 * 0.5 / _DRAWS**0.5)
    assert set(drawn[:, 3]) <= set(kept.tolist())


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "inputs", "error", "text"),
    [
        ({"model_type": 3}, {}, errors.NotImplemented, "model_type"),
        ({"model_type": 1}, {}, errors.InvalidGraph, "'encoder' is missing"),
        ({}, {"logits_processor": one_number(-1)}, errors.InvalidGraph, "is negative"),
        (
            {"model_type": 2},
            {"logits_processor": one_number(1)},
            errors.InvalidGraph,
            "Whisper's rules, whose tokens it does not name",
        ),
        ({}, {"max_length": one_number(3)}, errors.ContradictingSizes, "max_length"),
        ({}, {"num_return_sequences": one_number(3)}, errors.InvalidGraph, "num_beams"),
        ({}, {"num_beams": one_number(0)}, errors.InvalidGraph, "num_beams] It is out of bounds"),
        ({}, {"num_return_sequences": one_number(0)}, errors.InvalidGraph, "at least 1, got 0"),
        ({}, {"vocab_mask": _SOME[:5]}, errors.InvalidGraph, "vocab_mask"),
    ],
    ids=str,
)
def test_what_is_refused(
    attributes: dict[str, Any], inputs: dict[str, Any], error: type, text: str
) -> None:
    search = replace(_SEARCH, beams=2)
    given = _inputs(
        search, True, attention_mask=None, decoder_input_ids=None, logits_processor=None
    )
    given |= {name: (x, True) for name, x in inputs.items()}
    named = _attributes(search, decoder=Gpt().graph(), **attributes)
    model = generating_model("BeamSearch", given, named, {"sequences": _INT32})
    with pytest.raises(error, match="BeamSearch") as refused:
        session = sardonyx.InferenceSession(model.SerializeToString())
        session.run(None, {"input_ids": _PROMPT})
    assert text in str(refused.value)
