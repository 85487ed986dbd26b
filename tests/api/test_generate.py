"""`generate` against a loop that runs the whole text in each step, without a cache."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import sardonyx as ort
from sardonyx.api.generation.choosing import Choosing
from sardonyx.base import errors
from tests.support.decoders import HEADS, KV_HEADS, LAYERS, VOCABULARY, WIDTH, decoder

MODELS: dict[str, dict[str, Any]] = {
    "past and present": {},
    "half cache": {"half": True},
    "no positions": {"positions": False},
    "other names": {"past": "past_{kind}_{n}", "present": "present_{kind}_{n}"},
    "names that say nothing": {"past": "cache_in_{n}_{kind}_x", "present": "{kind}_states_{n}"},
    "one token a step": {"step": "1"},
    "grouped": {"grouped": True},
    "grouped, half": {"grouped": True, "half": True},
    "grouped, fixed cache": {"grouped": True, "room": 32},
    "grouped, lengths fed": {"grouped": True, "direct": True},
}
PROMPT = [5, 17, 3, 40]
PROMPTS = [[5, 17, 3, 40], [9], [22, 8]]


def plain(options: dict[str, Any], prompt: Sequence[int], count: int) -> list[int]:
    """The best tokens, each by a run of everything before it."""
    options = {k: v for k, v in options.items() if k not in ("step", "past", "present")}
    session = ort.InferenceSession(decoder(**options))
    heads = KV_HEADS if options.get("grouped") else HEADS
    kind = np.float16 if options.get("half") else np.float32
    empty = np.zeros((1, heads, options.get("room", 0), WIDTH), kind)
    text = list(prompt)
    for _ in range(count):
        n = len(text)
        known: dict[str, Any] = {
            "input_ids": np.array([text]), "attention_mask": np.ones((1, n), np.int64),
            "position_ids": np.arange(n)[None], "seqlens_k": np.array([n - 1], np.int32),
            "total_sequence_length": np.array([n], np.int32),
        }  # fmt: skip
        feeds = {v.name: known.get(v.name, empty) for v in session.get_inputs()}
        text.append(int(session.run(["logits"], feeds)[0][0, -1].argmax()))
    return text[len(prompt) :]


@pytest.mark.parametrize("name", MODELS)
def test_greedy(name: str) -> None:
    expected = plain(MODELS[name], PROMPT, 9)
    assert len(set(expected)) > 2 or name == "no positions", "the model says something"
    found = ort.generate(decoder(**MODELS[name]), PROMPT, max_new_tokens=9)
    assert found.tokens == expected
    assert found.finish_reasons == ["length"]


@pytest.mark.parametrize("name", [n for n in MODELS if n != "no positions"])
def test_prompts_of_different_lengths(name: str) -> None:
    session = ort.InferenceSession(decoder(**MODELS[name]))
    found = ort.generate(session, PROMPTS, max_new_tokens=6, pad=1).tokens
    assert found == [plain(MODELS[name], p, 6) for p in PROMPTS]


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    return ort.InferenceSession(decoder())


def test_streaming(session: ort.InferenceSession) -> None:
    expected = plain({}, PROMPT, 5)
    assert list(ort.generate(session, np.array(PROMPT), max_new_tokens=5)) == expected

    async def collected() -> list[int]:
        return [token async for token in ort.generate(session, PROMPT, max_new_tokens=5)]

    assert asyncio.run(collected()) == expected
    first = ort.generate(session, [PROMPT], max_new_tokens=5)
    assert next(first) == [expected[0]]
    assert first.finish_reasons == [None]
    assert first.tokens == [expected]


def test_ends(session: ort.InferenceSession) -> None:
    whole = [plain({}, p, 6) for p in PROMPTS]
    end = whole[1][2]
    found = ort.generate(session, PROMPTS, max_new_tokens=6, eos=end)
    wanted = [w[: w.index(end) + 1] if end in w else w for w in whole]
    steps = list(found)
    assert found.tokens == wanted
    assert found.finish_reasons == ["eos" if end in w else "length" for w in whole]
    assert [row[1] for row in steps] == wanted[1] + [None] * (len(steps) - len(wanted[1]))
    found = ort.generate(session, PROMPT, max_new_tokens=6, stop=[[99], whole[0][1:3]])
    assert (found.tokens, found.finish_reasons) == (whole[0][:3], ["stop"])
    found = ort.generate(session, PROMPT, stop=lambda new: len(new) == 2)
    assert found.tokens == whole[0][:2]
    assert ort.generate(session, PROMPT, max_new_tokens=0).tokens == []


def test_drawing_is_repeatable(session: ort.InferenceSession) -> None:
    def drawn(seed: int) -> list[int]:
        return ort.generate(session, PROMPT, max_new_tokens=12, temperature=9, seed=seed).tokens

    assert drawn(1) == drawn(1) != drawn(2)
    greedy = plain({}, PROMPT, 12)
    assert ort.generate(session, PROMPT, max_new_tokens=12, top_k=1, seed=5).tokens == greedy


SCORES = np.log(np.array([[0.5, 0.25, 0.15, 0.1]], np.float32))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": 1.0}, [0.5, 0.25, 0.15, 0.1]),
        ({"temperature": 0.5}, np.array([0.25, 0.0625, 0.0225, 0.01]) / 0.345),
        ({"temperature": 1.0, "top_k": 2}, [2 / 3, 1 / 3, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.6}, [2 / 3, 1 / 3, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.4}, [1, 0, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.8}, [5 / 9, 2.5 / 9, 1.5 / 9, 0]),
    ],
)
def test_probabilities(options: dict[str, Any], expected: Sequence[float]) -> None:
    choosing, count = Choosing(seed=0, **options), 4000
    tokens = [choosing.choose(SCORES, [[]])[0] for _ in range(count)]
    found = np.bincount(tokens, minlength=4) / count
    np.testing.assert_allclose(found, expected, atol=0.03)


def test_repetition() -> None:
    scores = np.array([[2.0, 1.5, -1.0, -1.5]], np.float32)
    assert Choosing(repetition_penalty=2).choose(scores, [[0]]) == [1]
    below_zero = np.array([[-1.0, -1.5, -9.0, -9.0]], np.float32)
    assert Choosing(repetition_penalty=2).choose(below_zero, [[0]]) == [1]
    assert Choosing().choose(scores, [[0]]) == [0]


def test_caches_stay_where_they_are(session: ort.InferenceSession, monkeypatch: Any) -> None:
    """Each step is fed the very values that the one before gave."""
    runs: list[tuple[dict[str, Any], list[Any]]] = []
    run = session.run_with_ort_values

    def noted(names: Any, feeds: Any, options: Any = None) -> list[Any]:
        runs.append((feeds, run(names, feeds, options)))
        return runs[-1][1]

    monkeypatch.setattr(session, "run_with_ort_values", noted)
    assert len(ort.generate(session, PROMPT, max_new_tokens=4).tokens) == 4
    assert len(runs) == 4
    for (_, given), (fed, _) in zip(runs, runs[1:], strict=False):
        values = [v for name, v in fed.items() if name.startswith("past")]
        assert len(values) == 2 * LAYERS
        assert all(a is b for a, b in zip(values, given[1:], strict=True))


def test_inputs_of_exporters(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = ["bool[1] use_cache_branch", "int64[S] cache_position", "int64 num_logits_to_keep"]
    session = ort.InferenceSession(decoder(extra=extra))
    fed: list[dict[str, Any]] = []
    run = session.run_with_ort_values

    def noted(names: Any, feeds: Any, options: Any = None) -> list[Any]:
        fed.append({n: feeds[n].numpy().tolist() for n in [e.split()[1] for e in extra]})
        return run(names, feeds, options)

    monkeypatch.setattr(session, "run_with_ort_values", noted)
    assert ort.generate(session, PROMPT, max_new_tokens=3).tokens == plain({}, PROMPT, 3)
    assert [list(f.values()) for f in fed] == [
        [[False], [0, 1, 2, 3], 1], [[True], [4], 1], [[True], [5], 1]
    ]  # fmt: skip


UNKNOWN = "float[B,7] pixel_values"


def test_models_that_are_not_understood() -> None:
    with pytest.raises(errors.NotImplemented, match=r"feed to pixel_values \(float.*inputs="):
        ort.generate(decoder(extra=[UNKNOWN]), PROMPT)
    fed = {"pixel_values": np.zeros((1, 7), np.float32)}
    found = ort.generate(decoder(extra=[UNKNOWN]), PROMPT, max_new_tokens=3, inputs=fed)
    assert found.tokens == plain({}, PROMPT, 3)
    with pytest.raises(errors.NotImplemented, match="takes 3 tokens"):
        ort.generate(decoder(step="3"), PROMPT)
    with pytest.raises(errors.NotImplemented, match="shape an empty cache"):
        ort.generate(decoder_with_open_heads(), PROMPT)


def decoder_with_open_heads() -> bytes:
    import onnx

    model = onnx.load_from_string(decoder())
    for value in (*model.graph.input[3:], *model.graph.output[1:]):
        value.type.tensor_type.shape.dim[1].dim_param = "H"
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("prompt", "options", "text"),
    [
        ("hello", {}, "prompt is text. Expected whole numbers.*got str. Make ids .* tokeniser"),
        (3.5, {}, "no ids of tokens. Expected whole numbers, .* got float"),
        ([1, -1], {}, f"not in the model's vocabulary. Expected 0 to {VOCABULARY - 1}, got -1"),
        ([], {}, "empty"),
        ([[1], []], {}, "empty"),
        ([1, VOCABULARY], {}, f"Expected 0 to {VOCABULARY - 1}, got {VOCABULARY}"),
        ([1], {"temperature": -1}, "temperature"),
        ([1], {"top_p": 0}, "top_p"),
        ([1], {"top_k": 1.5}, "top_k"),
        ([1], {"repetition_penalty": 0}, "repetition_penalty"),
        ([1], {"max_new_tokens": -1}, "max_new_tokens"),
        ([1], {"stop": [[]]}, "stop"),
        ([1], {"inputs": {"x": np.zeros(1)}}, "no input 'x'"),
        ([1], {"max_tokens": 3}, "no argument 'max_tokens'. Did you mean 'max_new_tokens'"),
    ],
)
def test_nonsense(session: Any, prompt: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        ort.generate(session, prompt, **options)


def test_a_cache_of_a_fixed_size_ends_the_text() -> None:
    session = ort.InferenceSession(decoder(grouped=True, room=8))
    found = ort.generate(session, PROMPT, max_new_tokens=50)
    assert found.tokens == plain({"grouped": True}, PROMPT, 5)
    with pytest.raises(errors.InvalidArgument, match=r"9 tokens.*holds 8"):
        ort.generate(session, list(range(9)))


def test_a_run_that_is_ended(session: ort.InferenceSession) -> None:
    options = ort.RunOptions()
    found = ort.generate(session, PROMPT, run_options=options)
    next(found)
    options.terminate = True
    with pytest.raises(errors.Fail):
        next(found)
    with pytest.raises(errors.Fail, match="earlier step"):
        next(found)
