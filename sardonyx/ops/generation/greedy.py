"""Searches that follow one sequence of each prompt: GreedySearch, Sampling."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import sizes
from sardonyx.base.dtypes import FLOAT
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ops.core.regions import Outside
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.generation.beams import (
    any_going,
)
from sardonyx.ops.generation.choice import Searched, TokenChoice
from sardonyx.ops.generation.decoders import (
    DecoderStep,
)
from sardonyx.ops.generation.loop import (
    DOMAIN,
    GPT,
    Model,
    longest_of,
    repeat,
    see_from,
    unless,
)
from sardonyx.ops.generation.scores import Rules
from sardonyx.tensor.language import (
    Tensor,
    cast,
    constant,
)
from sardonyx.tensor.region import Body

# -- one sequence of each prompt --------------------------------------------------------------


def _search(
    model: Model, rules: Rules, choice: TokenChoice, given: Tensor, mask: Tensor | None,
    max_length: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Sequences, and what the last choice was made from."""
    start: Dim = given.shape[-1] if model.kind == GPT else 1
    longest = longest_of(model.where, max_length, start)
    decoder = model.decode(given, None, mask, longest, 1)
    state = Searched.begin(decoder.prompt, longest, model.padding)
    logits, caches = decoder.begin()

    def stepped(
        state: Searched, logits: Tensor, length: Dim, number: Dim, outside: Outside | None
    ) -> tuple[Searched, Tensor]:
        ruled = rules.apply(
            logits, state.sequences, length, 1, see_from(outside), first=outside is None
        )
        tokens, used = choice.make(ruled, number, see_from(outside))
        return state.advance(tokens, length, rules.end_token, model.padding), used

    state, used = stepped(state, logits, start, 0, None)

    def step(inputs: Sequence[Tensor], number: Dim, outside: Outside) -> tuple[Body, list[Tensor]]:
        before = Searched(*inputs[:2])
        length = sizes.total((start, 1, number))
        newest = before.newest(length)
        at = DecoderStep(newest, before.sequences, length, number, inputs[3:], outside)
        body, found, kept = decoder.go_on(at)
        after, chosen_from = stepped(before, found, length, number + 1, outside)
        return body, [any_going(after.done), after.sequences, after.done, chosen_from, *kept]

    trips = sizes.total((longest, -1, -start))
    initial = [state.sequences, state.done, used, *caches]
    results = repeat(model.scope, initial, step, trips, any_going(state.done))
    return results[0], results[2]


@op("GreedySearch", 1, domain=DOMAIN)
def greedy_search(
    given: Tensor,
    max_length: Tensor,
    min_length: Tensor | None = None,
    repetition_penalty: Tensor | None = None,
    vocab_mask: Tensor | None = None,
    prefix_vocab_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    *,
    decoder: Graph,
    pad_token_id: int,
    eos_token_id: int,
    init_decoder: Graph | None = None,
    encoder: Graph | None = None,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    decoder_start_token_id: int = -1,
    vocab_size: int = -1,
    scope: Scope,
) -> Tensor:
    """Sequences whose every token is the likeliest one."""
    where_ = "GreedySearch"
    model = Model(where_, scope, decoder, init_decoder, encoder, model_type, pad_token_id,
                   decoder_start_token_id, vocab_size)  # fmt: skip
    rules = Rules(where_, eos_token_id, unless(repetition_penalty, 1), no_repeat_ngram_size,
                  vocab_mask, prefix_vocab_mask, unless(min_length, 0))  # fmt: skip
    return _search(model, rules, TokenChoice(), given, attention_mask, max_length)[0]


@op("Sampling", 1, domain=DOMAIN)
def sampling(
    given: Tensor,
    max_length: Tensor,
    min_length: Tensor | None = None,
    repetition_penalty: Tensor | None = None,
    vocab_mask: Tensor | None = None,
    prefix_vocab_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    presence_mask: Tensor | None = None,
    seed: Tensor | None = None,
    *,
    decoder: Graph,
    pad_token_id: int,
    eos_token_id: int,
    init_decoder: Graph | None = None,
    encoder: Graph | None = None,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    decoder_start_token_id: int = -1,
    vocab_size: int = -1,
    temperature: float = 1.0,
    top_p: float = 0.0,
    filter_value: float = -1e20,
    min_tokens_to_keep: int = 0,
    presence_penalty: float = 0.0,
    custom: int = 0,
    scope: Scope,
) -> tuple[Tensor, Tensor]:
    """Sequences whose every token is drawn among the likeliest ones."""
    where_ = "Sampling"
    model = Model(where_, scope, decoder, init_decoder, encoder, model_type, pad_token_id,
                   decoder_start_token_id, vocab_size)  # fmt: skip
    presence = None
    if presence_mask is not None and presence_penalty:
        presence = cast(presence_mask, FLOAT) * presence_penalty
    divisor = constant(temperature, FLOAT) if temperature > 0 and temperature != 1 else None
    rules = Rules(where_, eos_token_id, unless(repetition_penalty, 1), no_repeat_ngram_size,
                  vocab_mask, prefix_vocab_mask, unless(min_length, 0), divisor,
                  presence)  # fmt: skip
    # onnxruntime's other way to filter has no least number.
    least = 1 if custom else max(min_tokens_to_keep, 1)
    choice = TokenChoice.drawn(scope, seed, top_p, filter_value, least)
    return _search(model, rules, choice, given, attention_mask, max_length)
