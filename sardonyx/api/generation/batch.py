"""What a decoder is fed in each step: tokens, positions, masks, and caches that stay in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sardonyx.api.generation.roles import CacheRole, DecoderRole
from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.parts import runs_of
from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.declared import ValueInfo
from sardonyx.runtime.growable_values import new_growable
from sardonyx.runtime.storage import Array

if TYPE_CHECKING:
    from sardonyx.api.run_options import RunOptions
    from sardonyx.api.session import InferenceSession


class Prompts(NamedTuple):
    """Sequences as they begin.

    Attributes:
        tokens: Of each sequence.
        pad: The token that fills up shorter ones.
        capacity: How many tokens caches are made for.
    """

    tokens: Sequence[Sequence[int]]
    pad: int
    capacity: int


class Step(NamedTuple):
    """Tokens that a run is given, and where they stand.

    Attributes:
        ids: int64[batch, tokens].
        positions: Of each token in its sequence.
        mask: Which tokens, of all so far, there are.
        last_places: Of each sequence's last token.
        total: How many tokens caches have after the run.
        places: Of the scores that are wanted, among the run's tokens.
    """

    ids: Array
    positions: Array
    mask: Array
    last_places: Array
    total: int
    places: Array


class Batch:
    """Sequences on their way through a decoder.

    Shorter ones are padded in front, and masked there; with GroupQueryAttention, whose lengths
    count from the front, behind.

    Args:
        session: Runs the model.
        decoder: What its inputs are for.
        begun: What the sequences begin with.
        inputs: What is fed in each step as it is.
        run_options: Of each run, unless one has its own.
    """

    def __init__(
        self,
        session: InferenceSession,
        decoder: DecoderRole,
        begun: Prompts,
        inputs: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> None:
        self.session, self._decoder, self.run_options = session, decoder, run_options
        prompts, pad, capacity = begun
        self._extra = {name: _as_value(value) for name, value in inputs.items()}
        self._lengths = np.array([len(p) for p in prompts], np.int64)
        width = int(self._lengths.max())
        self._check_lengths(width)
        self._ids = np.full((len(prompts), width), pad, np.int64)
        self._is_token = np.zeros((len(prompts), width), np.bool_)
        for row, prompt in enumerate(prompts):
            place = slice(len(prompt)) if decoder.is_grouped else slice(width - len(prompt), None)
            self._ids[row, place] = prompt
            self._is_token[row, place] = True
        batch = len(prompts)
        self._values = {c.info.name: self._empty(c, batch, capacity) for c in decoder.caches}
        self._begun = False

    def prompt(self, options: RunOptions | None) -> Array:
        """Run the prompts; gives scores of the tokens that follow: float32[batch, vocabulary]."""
        ids, width = self._ids, self._ids.shape[1]
        positions = np.maximum(np.cumsum(self._is_token, 1) - 1, 0)
        if not self._decoder.takes_one:
            places = self._lengths - 1 if self._decoder.is_grouped else np.full(len(ids), width - 1)
            ends = self._lengths - 1
            step = Step(ids, positions, self._is_token, ends, width, places)
            return self._run(options, step)
        scores = None
        for k in range(width):
            part, upto = slice(k, k + 1), self._is_token[:, : k + 1]
            ends = np.full(len(ids), k)
            first = np.zeros(len(ids), np.int64)
            step = Step(ids[:, part], positions[:, part], upto, ends, k + 1, first)
            scores = self._run(options, step)
        assert scores is not None  # noqa: S101 - no prompt is empty
        return scores

    def step(self, tokens: Sequence[int], options: RunOptions | None) -> Array:
        """Run one more token of each sequence; gives the scores as `prompt` does."""
        ids = np.array(tokens, np.int64)[:, None]
        positions = self._lengths.copy()
        self._lengths += 1
        ones = np.ones_like(ids, dtype=np.bool_)
        total = self._is_token.shape[1] + 1
        if self._decoder.is_grouped:
            self._is_token = np.arange(total) < self._lengths[:, None]
        else:
            self._is_token = np.concatenate([self._is_token, ones], 1)
        places = np.zeros(len(ids), np.int64)
        mask, columns = self._is_token, positions[:, None]
        return self._run(options, Step(ids, columns, mask, positions, total, places))

    def _run(self, options: RunOptions | None, step: Step) -> Array:
        """The scores at one place of each sequence."""
        ids, positions, mask, last_places, total, places = step
        count = ids.shape[1]
        facts = {
            "tokens": ids, "positions": positions, "mask": mask, "last_places": last_places,
            "cache_positions": np.arange(total - count, total), "total": np.array([total]),
            "is_later": np.array([self._begun]),
            "kept_logits": np.array([1 if (places == count - 1).all() else count]),
        }  # fmt: skip
        feeds = {v.name: _fed(v, facts[role]) for role, v in self._decoder.inputs.items()}
        feeds |= self._values | self._extra
        results = self.session.run_with_ort_values(None, feeds, options)
        for cache in self._decoder.caches:
            if not (cache.is_encoder and self._begun):
                self._values[cache.info.name] = results[cache.output]
        self._begun = True
        return _at(results[self._decoder.logits].numpy(), places, count)

    def _empty(self, cache: CacheRole, batch: int, capacity: int) -> OrtValue:
        """A cache without a token, on the session's device."""
        shape, kind = self._decoder.cache_shape(cache, batch), cache.info.dtype.numpy
        memory = runs_of(self.session).loaded.kind
        axis = cache.axis
        if axis is not None:
            make = getattr(memory, "growable", new_growable)
            return OrtValue(make(shape, kind, axis, shape[axis] + capacity))
        # Places that nothing was written to are read, too: what is hidden must still be a number.
        return OrtValue(memory.copy_of(np.zeros(shape, kind)))

    def _check_lengths(self, width: int) -> None:
        if (self._lengths == width).all():
            return
        roles = self._decoder.inputs
        if self._decoder.takes_one and self._decoder.is_grouped:
            what = "Prompts differ in length, and a step takes one token"
            raise errors.NotImplemented(message("generate", what, do="Give one prompt at a time"))
        if "mask" not in roles and "last_places" not in roles:
            what = "Prompts differ in length, and the model has no input that hides what is padded"
            raise InvalidArgument(
                message(
                    "generate", what, expected="an input called attention_mask or seqlens_k",
                    got=str([v.name for v in roles.values()]), do="Give one prompt at a time",
                )
            )  # fmt: skip


def _fed(info: ValueInfo, fact: Array) -> OrtValue:
    """A fact as a tensor of an input's type and rank."""
    array = np.ascontiguousarray(fact.astype(info.dtype.numpy))
    rank = len(info.shape)
    if array.ndim < rank:
        array = array.reshape(*array.shape, *[1] * (rank - array.ndim))
    elif array.ndim > rank and array.size == 1:
        array = array.reshape([1] * rank)
    return OrtValue(array)


def _as_value(value: Any) -> OrtValue:
    if isinstance(value, OrtValue):
        return value
    is_foreign = hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)
    return OrtValue.from_dlpack(value) if is_foreign else OrtValue(np.asarray(value))


def _at(logits: Array, places: Array, count: int) -> Array:
    """The scores at one place of each sequence: float32[batch, vocabulary]."""
    if logits.ndim == 3:
        # A model may give the last tokens' scores alone.
        behind = np.maximum(places - (count - logits.shape[1]), 0)
        logits = logits[np.arange(len(logits)), behind]
    return logits.astype(np.float32, copy=False)
