"""Beam searches with the graph of a decoder: BeamSearch, WhisperBeamSearch.

The first step stands beside the node, the others are a loop of the plan, as that of `Loop` is.
`passes/expand.py` gives the node a copy of the decoder for its first step where it has none.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base import errors, sizes
from sardonyx.base.dtypes import FLOAT
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import Dim
from sardonyx.ir.graph import Graph
from sardonyx.ops.core.regions import Outside
from sardonyx.ops.core.registry import op
from sardonyx.ops.core.scalars import scalar_of
from sardonyx.ops.core.scope import Scope
from sardonyx.ops.generation.beams import (
    BeamPolicy,
    Beams,
    advance,
    any_going,
    begin,
    finish,
    newest_tokens,
)
from sardonyx.ops.generation.decoders import (
    DecoderStep,
    spread,
)
from sardonyx.ops.generation.loop import (
    DOMAIN,
    GPT,
    WHISPER,
    Model,
    longest_of,
    number_of,
    repeat,
    see_from,
    unless,
)
from sardonyx.ops.generation.scores import Rules
from sardonyx.ops.generation.timestamps import TimestampTokens
from sardonyx.ops.onnx.normalisation import log_softmax_over, softmax_over
from sardonyx.tensor import scalar
from sardonyx.tensor.language import (
    Tensor,
    assume_at_most,
    cast,
    compute,
    concat,
    constant,
    reshape,
    slice_axis,
    unsqueeze,
)
from sardonyx.tensor.region import Body
from sardonyx.tensor.symbolic import elements_of

_CROSS_QK = (
    "the schema does not say what the output cross_qk has of returned sequences that ended before "
    "others, or of beams that were left, and onnxruntime gives it on NVIDIA's GPUs alone"
)
#: What a `logits_processor` is that means Whisper's rules for timestamps.
TIMESTAMPS = 1

# -- beams ------------------------------------------------------------------------------------


def _beam_search(
    model: Model, rules: Rules, given: Tensor, prompt: Tensor | None, mask: Tensor | None,
    max_length: Tensor, num_beams: Tensor, num_return_sequences: Tensor,
    length_penalty: Tensor | None, stops_early: bool, wants_scores: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:  # fmt: skip
    """Sequences, their scores, those of all steps, and the logits after the prompt."""
    where_ = model.where
    beams = number_of(num_beams, f"{where_}: num_beams", 1)
    returned = number_of(num_return_sequences, f"{where_}: num_return_sequences", 1)
    assume_at_most(returned, beams, where_, "num_return_sequences is more than num_beams")
    start: Dim = 1 if prompt is None else prompt.shape[-1]
    if model.kind == GPT:
        start = given.shape[-1]
    longest = longest_of(where_, max_length, start)
    decoder = model.decode(given, prompt, mask, longest, beams)
    power = constant(1.0, FLOAT) if length_penalty is None else length_penalty
    power = cast(scalar_of(power, where_), FLOAT)
    policy = BeamPolicy(beams, rules.end_token, model.padding, power, stops_early)

    def stepped(
        state: Beams, logits: Tensor, length: Dim, inner: BeamPolicy, outside: Outside | None
    ) -> tuple[Beams, Tensor, Tensor]:
        chances = log_softmax_over(logits, (1,))
        if outside is None:
            chances = spread(chances, 0, beams)
        ruled = rules.apply(
            chances, state.sequences, length, beams, see_from(outside), first=outside is None
        )
        totals = ruled + unsqueeze(state.scores, (1,))
        return *advance(state, totals, length, inner), totals

    logits, caches = decoder.begin()
    state, _, totals = stepped(begin(decoder.prompt, longest, policy), logits, start, policy, None)
    fields = len(state.tensors())

    def step(inputs: Sequence[Tensor], number: Dim, outside: Outside) -> tuple[Body, list[Tensor]]:
        before = Beams(*inputs[:fields])
        length = sizes.total((start, 1, number))
        newest = newest_tokens(before, length)
        at = DecoderStep(newest, before.sequences, length, number, inputs[fields:], outside)
        body, found, kept = decoder.go_on(at)
        inner = BeamPolicy(beams, policy.end, policy.padding, at.see(power), policy.stops_early)
        after, sources, ruled = stepped(before, found, length, inner, outside)
        kept = [_chosen(x, decoder.cache_axis, sources) for x in kept]
        shape = (decoder.batch, beams, ruled.shape[1])
        slices = [reshape(ruled, shape)] if wants_scores else []
        return body, [any_going(after.done), *after.tensors(), *kept, *slices]

    trips = sizes.total((longest, -1, -start))
    results = repeat(model.scope, [*state.tensors(), *caches], step, trips, any_going(state.done))
    ended, ended_scores = finish(Beams(*results[:fields]), longest, policy)
    scores = None
    if wants_scores:
        scores = _all_scores(reshape(totals, (decoder.batch, beams, totals.shape[1])),
                             results[-1], trips + 1)  # fmt: skip
    best, best_scores = slice_axis(ended, 1, 0, returned), slice_axis(ended_scores, 1, 0, returned)
    return best, best_scores, scores, logits


def _chosen(cache: Tensor, axis: int, sources: Tensor) -> Tensor:
    """What is cached, in the order of the rows that go on."""

    def body(*at: Dim) -> scalar.Scalar:
        row = scalar.as_index(scalar.load(sources, (at[axis],)), cache.shape[axis])
        return scalar.load(cache, (*at[:axis], row, *at[axis + 1 :]))

    return compute(cache.shape, body)


def _all_scores(first: Tensor, others: Tensor, steps: Dim) -> Tensor:
    """Scores of every step, zeros after the last: [steps, batch, beams, vocabulary]."""
    rest = sizes.total((steps, -1, -others.shape[0]))
    zeros = constant(0.0, FLOAT, (rest, *first.shape))
    return concat([unsqueeze(first, (0,)), others, zeros], 0)


def _processor(where_: str, kind: Tensor | None, matters: bool) -> int:
    """Which rules a `logits_processor` names; 0: none.

    Raises:
        NotImplemented: Only a run knows it, and it matters.
        InvalidGraph: It is negative.
    """
    if kind is None:
        return 0
    (known,) = elements_of(kind) or (None,)
    if not isinstance(known, int):
        if not matters:
            return 0
        what = "Its input logits_processor must be a constant"
        raise errors.NotImplemented(message(where_, what))
    if known < 0:
        what = "Its input logits_processor is negative"
        raise InvalidGraph(message(where_, what, expected="at least 0", got=str(known)))
    return known


@op("BeamSearch", 1, domain=DOMAIN)
def beam_search(
    given: Tensor,
    max_length: Tensor,
    min_length: Tensor | None,
    num_beams: Tensor,
    num_return_sequences: Tensor,
    length_penalty: Tensor | None = None,
    repetition_penalty: Tensor | None = None,
    vocab_mask: Tensor | None = None,
    prefix_vocab_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    decoder_input_ids: Tensor | None = None,
    logits_processor: Tensor | None = None,
    *,
    decoder: Graph,
    pad_token_id: int,
    eos_token_id: int,
    init_decoder: Graph | None = None,
    encoder: Graph | None = None,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    vocab_size: int = -1,
    output_count: int,
    scope: Scope,
) -> tuple[Tensor | None, ...]:
    """The likeliest sequences that a decoder gives, by a search of some beams.

    Only Whisper's decoder has a `logits_processor`; those of others, and all but 1, change nothing.
    """
    where_ = "BeamSearch"
    is_whisper = model_type == WHISPER
    if _processor(where_, logits_processor, is_whisper) == TIMESTAMPS and is_whisper:
        # onnxruntime refuses it, too: the operator has no attributes for the tokens.
        what = "Its input logits_processor asks for Whisper's rules, whose tokens it does not name"
        raise InvalidGraph(message(where_, what, do="Use WhisperBeamSearch"))
    model = Model(where_, scope, decoder, init_decoder, encoder, model_type, pad_token_id,
                   decoder_start_token_id, vocab_size)  # fmt: skip
    rules = Rules(where_, eos_token_id, unless(repetition_penalty, 1), no_repeat_ngram_size,
                  vocab_mask, prefix_vocab_mask, unless(min_length, 0))  # fmt: skip
    sequences, ended, scores, _ = _beam_search(
        model, rules, given, decoder_input_ids, attention_mask, max_length, num_beams,
        num_return_sequences, length_penalty, bool(early_stopping), output_count > 2,
    )  # fmt: skip
    dtype = FLOAT if length_penalty is None else length_penalty.dtype
    return sequences, cast(ended, dtype), None if scores is None else cast(scores, dtype)


@op("WhisperBeamSearch", 1, domain=DOMAIN)
def whisper_beam_search(
    given: Tensor,
    max_length: Tensor,
    min_length: Tensor | None,
    num_beams: Tensor,
    num_return_sequences: Tensor,
    length_penalty: Tensor | None = None,
    repetition_penalty: Tensor | None = None,
    vocab_mask: Tensor | None = None,
    prefix_vocab_mask: Tensor | None = None,
    attention_mask: Tensor | None = None,
    decoder_input_ids: Tensor | None = None,
    logits_processor: Tensor | None = None,
    cross_qk_layer_head: Tensor | None = None,
    extra_decoding_ids: Tensor | None = None,
    temperature: Tensor | None = None,
    *,
    decoder: Graph,
    pad_token_id: int,
    eos_token_id: int,
    init_decoder: Graph | None = None,
    encoder: Graph | None = None,
    model_type: int = WHISPER,
    no_repeat_ngram_size: int = 0,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    vocab_size: int = -1,
    decoder_output_cross_qk: int = 0,
    translate_token_id: int = -1,
    no_speech_token_id: int = -1,
    transcribe_token_id: int = -1,
    start_of_lm_token_id: int = -1,
    no_timestamps_token_id: int = -1,
    beginning_timestamp_token_id: int = -1,
    output_count: int,
    scope: Scope,
) -> tuple[Tensor | None, ...]:
    """BeamSearch of Whisper, with its rules for timestamps if `logits_processor` is 1."""
    where_ = "WhisperBeamSearch"
    for x, name in ((cross_qk_layer_head, "cross_qk_layer_head"),
                    (extra_decoding_ids, "extra_decoding_ids")):  # fmt: skip
        if x is not None:
            what = f"Its input {name} is not supported: {_CROSS_QK}"
            raise errors.NotImplemented(message(where_, what))
    if decoder_output_cross_qk:
        what = f"Its attribute decoder_output_cross_qk is not supported: {_CROSS_QK}"
        raise errors.NotImplemented(message(where_, what, expected="0"))
    timestamps = None
    if _processor(where_, logits_processor, True) == TIMESTAMPS:
        if beginning_timestamp_token_id < 0:
            what = "Its attribute beginning_timestamp_token_id is missing"
            raise InvalidGraph(message(where_, what))
        tasks = (decoder_start_token_id, translate_token_id, transcribe_token_id)
        timestamps = TimestampTokens(
            eos_token_id, beginning_timestamp_token_id, no_timestamps_token_id,
            start_of_lm_token_id, tasks,
        )  # fmt: skip
    model = Model(where_, scope, decoder, init_decoder, encoder, model_type, pad_token_id,
                   decoder_start_token_id, vocab_size)  # fmt: skip
    rules = Rules(where_, eos_token_id, unless(repetition_penalty, 1), no_repeat_ngram_size,
                  vocab_mask, prefix_vocab_mask, unless(min_length, 0), unless(temperature, 1),
                  timestamps=timestamps)  # fmt: skip
    sequences, ended, scores, logits = _beam_search(
        model, rules, given, decoder_input_ids, attention_mask, max_length, num_beams,
        num_return_sequences, length_penalty, bool(early_stopping), output_count > 2,
    )  # fmt: skip
    dtype = FLOAT if length_penalty is None else length_penalty.dtype
    silent = None
    if output_count > 4:  # noqa: PLR2004 - the fifth
        if no_speech_token_id < 0:
            what = "Its attribute no_speech_token_id is missing, which its last output needs"
            raise InvalidGraph(message(where_, what))
        chances = softmax_over(logits, (1,))
        silent = cast(slice_axis(chances, 1, no_speech_token_id, no_speech_token_id + 1), dtype)
        silent = reshape(silent, (logits.shape[0],))
    steps = None if scores is None else cast(scores, dtype)
    return sequences, cast(ended, dtype), steps, None, silent
