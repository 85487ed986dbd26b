"""What each input and output of a decoder is for, found from names, types, shapes and the graph."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sardonyx.api.parts import engine_of, model_of
from sardonyx.base import errors
from sardonyx.base.errors import message
from sardonyx.runtime.declared import ValueInfo

if TYPE_CHECKING:
    from sardonyx.api.session import InferenceSession

#: Role -> names of inputs that have it. What they are fed: `sardonyx.api.generation.batch`.
_NAMES = {
    "tokens": ("input_ids", "decoder_input_ids", "tokens", "token_ids", "ids", "token"),
    "mask": ("attention_mask", "decoder_attention_mask"),
    "positions": ("position_ids", "decoder_position_ids"),
    "cache_positions": ("cache_position",),
    "is_later": ("use_cache_branch", "use_cache"),
    "last_places": ("seqlens_k", "seq_lens_k", "past_seq_len"),
    "total": ("total_sequence_length", "total_seq_len", "total_seqlen"),
    "kept_logits": ("num_logits_to_keep", "logits_to_keep"),
}  # fmt: skip
_ROLES = {name: role for role, names in _NAMES.items() for name in names}
_RANKS = {"tokens": (2,), "mask": (2,), "positions": (2,), "cache_positions": (1,)}

#: Words by which names of a cache's inputs and outputs differ.
_NOISE = {"past", "present", "new", "next", "updated", "in", "out", "input", "output", "cache"}
#: Words in names of caches of an encoder's results, which are computed once.
_ENCODER = {"encoder", "cross"}
_WHERE = "generate"


@dataclass(frozen=True, slots=True)
class CacheRole:
    """An input that an output becomes in the next step.

    Attributes:
        info: The input.
        output: The number of the output.
        axis: The axis that grows by itself, behind what is there; None if the model decides.
        is_encoder: Whether it holds an encoder's results.
    """

    info: ValueInfo
    output: int
    axis: int | None
    is_encoder: bool


@dataclass(frozen=True, slots=True)
class DecoderRole:
    """A model that is understood.

    Attributes:
        inputs: By role, what the model declares.
        caches: What goes from step to step.
        logits: The number of the output with scores of tokens.
        vocabulary: How many tokens there are; None if only a run knows.
        is_grouped: Whether shorter sequences are padded behind, as GroupQueryAttention has it.
        takes_one: Whether a step takes one token, also of a prompt.
        capacity: The most tokens that caches of a fixed size hold; None if they grow.
    """

    inputs: dict[str, ValueInfo]
    caches: tuple[CacheRole, ...]
    logits: int
    vocabulary: int | None
    is_grouped: bool
    takes_one: bool
    capacity: int | None

    def cache_shape(self, cache: CacheRole, batch: int) -> tuple[int, ...]:
        """The shape of a cache before the first token.

        Raises:
            NotImplemented: More sizes than those of the batch and of the past are open.
        """
        shape = cache.info.shape
        batch_name = self.inputs["tokens"].shape[0]
        named = [k for k, d in enumerate(shape) if isinstance(d, str) and d == batch_name]
        open_axes = [k for k, d in enumerate(shape) if not isinstance(d, int)]
        own = named[0] if named else next(iter(open_axes), None)
        if own is not None and (own == cache.axis or (not named and own > 1)):
            own = None
        rest = [k for k in open_axes if k != own]
        if len(rest) > 1:
            raise errors.NotImplemented(
                message(
                    f"input {cache.info.name}",
                    "Which shape an empty cache has cannot be seen from the model",
                    expected="numbers but for batch and past", got=str(list(shape)),
                    do="Set the others with SessionOptions.add_free_dimension_override_by_name",
                )
            )  # fmt: skip
        return tuple(
            d if isinstance(d, int) else batch if k == own else 0 for k, d in enumerate(shape)
        )


def understand(session: InferenceSession, given: Collection[str]) -> DecoderRole:
    """What the inputs and outputs of a session's model are for.

    Args:
        session: Of the model.
        given: Inputs that the caller feeds.

    Raises:
        NotImplemented: It has inputs that nobody can feed (they are named), or is no decoder.
    """
    record = engine_of(session).record
    every, outputs = record.inputs, record.outputs
    inputs = {v.name: v for v in every if v.name not in given}
    roles = {_ROLES[n]: v for n, v in inputs.items() if n in _ROLES and _has_rank(v, _ROLES[n])}
    rest = {n: v for n, v in inputs.items() if v not in roles.values()}
    grown = {every[a.input].name: (a.output, a.axis) for a in record.appended}
    caches = _caches(rest, outputs, grown)
    rest = {n: v for n, v in rest.items() if n not in {c.info.name for c in caches}}
    if "tokens" not in roles:
        whole = [v for v in rest.values() if len(v.shape) == 2 and v.dtype.name[:3] == "int"]
        if len(whole) == 1:
            roles["tokens"] = whole[0]
            del rest[whole[0].name]
    _check_inputs(roles, caches, rest)
    logits = _logits(outputs, {c.output for c in caches})
    tokens = roles["tokens"].shape
    if isinstance(tokens[1], int) and tokens[1] != 1:
        what = f"Each step takes {tokens[1]} tokens, which is supported for one or any number only"
        raise errors.NotImplemented(message(f"input {roles['tokens'].name}", what))
    size = outputs[logits].shape[-1]
    return DecoderRole(
        roles, caches, logits, size if isinstance(size, int) else None,
        "last_places" in roles or _has_grouped(session), tokens[1] == 1, _capacity(caches),
    )  # fmt: skip


def _has_rank(info: ValueInfo, role: str) -> bool:
    return role not in _RANKS or len(info.shape) in _RANKS[role]


def _caches(
    inputs: dict[str, ValueInfo],
    outputs: Sequence[ValueInfo],
    grown: dict[str, tuple[int, int]],
) -> tuple[CacheRole, ...]:
    """Which inputs are outputs of the step before: by graph, by name, then by order."""
    found: dict[str, tuple[int, int | None]] = {n: grown[n] for n in inputs if n in grown}
    taken = {output for output, _ in found.values()}
    left = {n: v for n, v in inputs.items() if n not in found and _may_be_cache(v)}
    keys: dict[frozenset[str], list[int]] = {}
    for k, info in enumerate(outputs):
        keys.setdefault(_words(info.name), []).append(k)
    for name, info in list(left.items()):
        places = [k for k in keys.get(_words(name), ()) if k not in taken]
        if len(places) == 1 and _same(info, outputs[places[0]]):
            found[name] = (places[0], None)
            taken.add(places[0])
            del left[name]
    open_places = [
        k for k, v in enumerate(outputs) if k not in taken and len(v.shape) > 3 and _may_be_cache(v)
    ]
    if len(left) == len(open_places):
        pairs = list(zip(left.items(), open_places, strict=True))
        if all(_same(info, outputs[k]) for (_, info), k in pairs):
            found.update({name: (k, None) for (name, _), k in pairs})
    return tuple(
        CacheRole(info, *found[name], is_encoder=bool(_ENCODER & _words(name)))
        for name, info in inputs.items()
        if name in found
    )


def _words(name: str) -> frozenset[str]:
    """What a name of a cache says, apart from whether it is an input or an output."""
    text = re.sub(r"key[._]values", " ", name.lower())
    return frozenset(re.findall(r"[a-z]+|\d+", text)) - _NOISE


def _may_be_cache(info: ValueInfo) -> bool:
    return len(info.shape) >= 3 and "float" in info.dtype.name


def _same(info: ValueInfo, output: ValueInfo) -> bool:
    """Whether an output may be an input of the next step."""
    pairs = list(zip(info.shape, output.shape, strict=False))
    fits = all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))
    return fits and len(info.shape) == len(output.shape) and info.dtype == output.dtype


def _check_inputs(
    roles: dict[str, ValueInfo], caches: tuple[CacheRole, ...], rest: dict[str, ValueInfo]
) -> None:
    if rest:
        listed = ", ".join(f"{v.name} ({v.dtype.name}{list(v.shape)})" for v in rest.values())
        known = ", ".join(sorted(_ROLES))
        raise errors.NotImplemented(
            message(
                _WHERE, f"What to feed to {listed} is not known",
                expected=f"inputs with an output that continues them, or called {known}",
                do="Give what stays the same in all steps as inputs={name: array}",
            )
        )  # fmt: skip
    if "tokens" not in roles:
        what = "The model has no input for tokens: integers (batch, sequence)"
        raise errors.NotImplemented(message(_WHERE, what, do="Is this a decoder?"))
    if not caches:
        raise errors.NotImplemented(
            message(
                _WHERE, "The model keeps no keys and values: no output continues an input",
                expected="past_key_values.0.key -> present.0.key or the like",
                do="Export the model with its cache (use_cache, `text-generation-with-past`)",
            )
        )  # fmt: skip


def _logits(outputs: Sequence[ValueInfo], taken: set[int]) -> int:
    """Which output has scores: the one called so, else the only one that may."""
    floats = [k for k, v in enumerate(outputs) if k not in taken and "float" in v.dtype.name]
    named = [k for k in floats if outputs[k].name == "logits"]
    fitting = named or [k for k in floats if len(outputs[k].shape) in (2, 3)]
    if len(fitting) != 1:
        raise errors.NotImplemented(
            message(
                _WHERE, "It cannot be seen which output has the scores of tokens",
                expected="one called logits, or one of floats (batch, sequence, vocabulary)",
                got=str([v.name for k, v in enumerate(outputs) if k not in taken]),
            )
        )  # fmt: skip
    return fitting[0]


def _capacity(caches: tuple[CacheRole, ...]) -> int | None:
    """How many tokens caches hold, the shape of which has numbers for all axes behind the batch."""
    fixed = [c.info.shape for c in caches if not c.is_encoder]
    sizes: list[Any] = [s[-2] for s in fixed if all(isinstance(d, int) for d in s[1:])]
    return min(sizes) if sizes else None


def _has_grouped(session: InferenceSession) -> bool:
    from sardonyx.api.assignment import assigned

    parts = assigned(model_of(session).source)
    return any(n.op_type == "GroupQueryAttention" for part in parts for n in part.nodes)
