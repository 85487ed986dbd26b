"""`generate`: tokens that a decoder writes behind a prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sardonyx.api.generation.batch import Batch, Prompts
from sardonyx.api.generation.choosing import Choosing
from sardonyx.api.generation.roles import understand
from sardonyx.api.parts import async_runs_of
from sardonyx.api.run_options import RunOptions
from sardonyx.api.session import InferenceSession
from sardonyx.api.shown import facts
from sardonyx.api.spelling import names_arguments, nearest
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import Fail, InvalidArgument, message
from sardonyx.base.texts import counted

#: Token sequences that end a text, or a function of the new tokens that says whether it ends.
Stop = Sequence[Sequence[int]] | Callable[[Sequence[int]], bool]

_WHERE = "generate"


class Ends(NamedTuple):
    """What ends a text: so many new tokens, one of these tokens, or what a function says."""

    limit: int
    eos: frozenset[int]
    stop: Callable[[Sequence[int]], bool]


class Generation:
    """Tokens as they are chosen: an iterator, for `for` and `async for`.

    It gives each token of one prompt as an int; of several prompts, for each step, a list with a
    token for each of them, None where one has ended. Nothing runs before it is asked for.

    Attributes:
        finish_reasons: For each prompt `"eos"`, `"stop"`, `"length"` (of `max_new_tokens`, or of a
            cache of a fixed size), or None as long as it goes on.
    """

    def __init__(
        self,
        batch: Batch,
        choosing: Choosing,
        prompts: list[list[int]],
        is_single: bool,
        ends: Ends,
    ) -> None:
        self._batch, self._choosing, self._prompts = batch, choosing, prompts
        self._is_single, self._ends = is_single, ends
        self._new: list[list[int]] = [[] for _ in prompts]
        self._fed: list[int] | None = None
        self._is_broken = False
        self.finish_reasons: list[str | None] = [None if ends.limit else "length" for _ in prompts]

    def __repr__(self) -> str:
        own: Mapping[str, Any] = self.__dict__
        reasons, new = own.get("finish_reasons", ()), own.get("_new", ())
        ended = f"{sum(reason is not None for reason in reasons)} ended"
        tokens = counted(sum(map(len, new)), "new token")
        return facts(self, counted(len(reasons), "prompt"), tokens, ended)

    @property
    def tokens(self) -> Any:
        """All new tokens, those that end a text included: runs to the end.

        A list of ints, or a list of such lists for several prompts.
        """
        for _ in self:
            pass
        return self._new[0] if self._is_single else self._new

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._next(self._batch.run_options)

    def _next(self, run_options: RunOptions | None) -> Any:
        if self._is_broken:
            raise Fail(message(_WHERE, "An earlier step failed", do="Generate anew"))
        if all(self.finish_reasons):
            raise StopIteration
        # A step that failed has changed some of the caches, perhaps.
        self._is_broken = True
        batch = self._batch
        if self._fed is None:
            scores = batch.prompt(run_options)
        else:
            scores = batch.step(self._fed, run_options)
        seen = [[*p, *n] for p, n in zip(self._prompts, self._new, strict=True)]
        chosen = self._choosing.choose(scores, seen)
        given: list[int | None] = []
        for row, token in enumerate(chosen):
            is_over = self.finish_reasons[row] is not None
            given.append(None if is_over else token)
            if not is_over:
                self._new[row].append(token)
                self.finish_reasons[row] = self._reason(row, token)
        self._fed, self._is_broken = chosen, False
        return given[0] if self._is_single else given

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        """The next tokens; the model runs in a thread, as in `run_async`, until it is cancelled."""
        options = (self._batch.run_options or RunOptions()).ended_apart()

        def work() -> Any:
            try:
                return self._next(options)
            except StopIteration:  # no coroutine may raise it
                return self

        found = await async_runs_of(self._batch.session).in_a_thread(work, options.cancel_flag)
        if found is self:
            raise StopAsyncIteration
        return found

    def _reason(self, row: int, token: int) -> str | None:
        new = self._new[row]
        if token in self._ends.eos:
            return "eos"
        if self._ends.stop(new):
            return "stop"
        return "length" if len(new) >= self._ends.limit else None


@names_arguments
@names_misfits
def generate(
    model: Any,
    prompt: Any,
    *,
    max_new_tokens: int = 128,
    temperature: float | None = None,
    top_k: int = 0,
    top_p: float = 1.0,
    repetition_penalty: float = 1.0,
    seed: int | None = None,
    eos: int | Iterable[int] = (),
    stop: Stop = (),
    pad: int = 0,
    inputs: Mapping[str, Any] | None = None,
    run_options: RunOptions | None = None,
) -> Generation:
    """Write tokens behind a prompt with a decoder that keeps keys and values from step to step.

    The model is an export with past and present (`past_key_values.0.key` -> `present.0.key`,
    `past_0` -> `present_0`, or any inputs that outputs continue), with GroupQueryAttention or
    without. `attention_mask`, `position_ids`, `seqlens_k`, `use_cache_branch` and the like are fed
    as it asks. Keys and values stay on the session's device: each step's are the next one's inputs.

    Args:
        model: A session, or what makes one: a path, bytes, a ModelProto.
        prompt: Ids of tokens; or several such sequences, which may differ in length.
        max_new_tokens: The most tokens that are written.
        temperature: Scores are divided by it before a token is drawn; 0 takes the best token. By
            default 1 if one of `top_k`, `top_p` and `seed` is given, else 0.
        top_k: How many of the best tokens may be drawn; 0 for all.
        top_p: The least sum of probabilities of the best tokens that may be drawn.
        repetition_penalty: Makes tokens that were there less likely; 1 changes nothing.
        seed: The same one gives the same tokens.
        eos: Tokens that end a text.
        stop: Token sequences that end a text, or a function of the new tokens.
        pad: The token that fills up shorter prompts; it is hidden from the others.
        inputs: What is fed in each step as it is, such as `encoder_hidden_states`.
        run_options: `terminate` ends the run that is under way.

    Raises:
        NotImplemented: The model has inputs that are not known; they are named.
        InvalidArgument: An argument does not fit, or is unknown (then a TypeError, too).
    """
    session = model if isinstance(model, InferenceSession) else InferenceSession(model)
    given = inputs or {}
    known = {v.name for v in session.get_inputs()}
    for name in given:
        if name not in known:
            what, do = f"The model has no input {name!r}", nearest(name, known)
            raise InvalidArgument(message(_WHERE, what, do=do))
    decoder = understand(session, given)
    prompts, is_single = _prompts(prompt, decoder.vocabulary)
    if not isinstance(max_new_tokens, int) or max_new_tokens < 0:
        what = "The option max_new_tokens does not fit"
        got = repr(max_new_tokens)
        raise InvalidArgument(message(_WHERE, what, expected="0 or more", got=got))
    longest = max(map(len, prompts))
    if decoder.capacity is not None:
        max_new_tokens = min(max_new_tokens, decoder.capacity - longest + 1)
        if max_new_tokens <= 0 < longest - decoder.capacity:
            what = (
                f"The prompt has {longest} tokens, and the model's cache holds {decoder.capacity}"
            )
            raise InvalidArgument(message(_WHERE, what))
    if temperature is None:
        temperature = 1.0 if top_k or top_p < 1 or seed is not None else 0.0
    choosing = Choosing(temperature, top_k, top_p, repetition_penalty, seed)
    begun = Prompts(prompts, pad, longest + max_new_tokens)
    batch = Batch(session, decoder, begun, given, run_options)
    last = frozenset([eos] if isinstance(eos, int) else eos)
    ends = Ends(max_new_tokens, last, _stopper(stop))
    return Generation(batch, choosing, prompts, is_single, ends)


def _prompts(given: Any, vocabulary: int | None) -> tuple[list[list[int]], bool]:
    """Prompts as lists, and whether it is one that came alone."""
    if isinstance(given, np.ndarray):
        given = given.tolist()
    try:
        rows = [x.tolist() if isinstance(x, np.ndarray) else x for x in given]
        is_single = all(isinstance(x, (int, np.integer)) for x in rows)
        prompts = [[int(t) for t in row] for row in ([rows] if is_single else rows)]
    except (TypeError, ValueError):
        is_text = isinstance(given, (str, bytes))
        what = "The prompt is text" if is_text else "The prompt has no ids of tokens"
        expected = "whole numbers, or a list of such sequences"
        got = type(given).__name__
        do = "Make ids of text with the model's tokeniser" if is_text else ""
        raise InvalidArgument(message(_WHERE, what, expected=expected, got=got, do=do)) from None
    if not prompts or not all(prompts):
        raise InvalidArgument(message(_WHERE, "A prompt is empty", expected="at least one token"))
    for token in (t for p in prompts for t in p):
        if token < 0 or (vocabulary is not None and token >= vocabulary):
            expected = "0 or more" if vocabulary is None else f"0 to {vocabulary - 1}"
            what = "The prompt has a token that is not in the model's vocabulary"
            raise InvalidArgument(message(_WHERE, what, expected=expected, got=str(token)))
    return prompts, is_single


def _stopper(stop: Stop) -> Callable[[Sequence[int]], bool]:
    if callable(stop):
        return stop
    try:
        ends = [list(map(int, x)) for x in stop]
    except (TypeError, ValueError):
        ends = [[]]
    if not all(ends):
        what = "The option stop does not fit"
        expected = "sequences of token ids, or a function"
        raise InvalidArgument(message(_WHERE, what, expected=expected, got=repr(stop)))
    return lambda new: any(list(new[-len(end) :]) == end for end in ends)
