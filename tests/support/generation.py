"""Small random decoders as graphs and in NumPy, and searches in NumPy by the operators' schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

WORDS, WIDTH, HEADS, PLACES = 11, 8, 2, 24
LOWEST = np.finfo(np.float32).min
Array = Any
#: (tokens [rows, length], first row's prompt) -> logits after the last token [rows, words]
Logits = Callable[[Array], Array]


def weights(seed: int, names: Mapping[str, tuple[int, ...]], scale: float = 1.0) -> dict[str, Any]:
    """Random float tensors."""
    random = np.random.default_rng(seed)
    return {n: (random.standard_normal(s) * scale).astype(np.float32) for n, s in names.items()}


def split_heads(x: Array) -> Array:
    """(rows, length, width) -> (rows, heads, length, size)."""
    return x.reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)


def attend(q: Array, k: Array, v: Array, allowed: Array) -> Array:
    """Attention, (rows, heads, queries, size) -> (rows, queries, width)."""
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
    scores = np.where(allowed, scores, -1e4)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    found = (e / e.sum(-1, keepdims=True)) @ v
    return found.transpose(0, 2, 1, 3).reshape(found.shape[0], found.shape[2], -1)


# -- like GPT-2 -------------------------------------------------------------------------------

_GPT = """
g (int32[B, S] input_ids, int32[B, S] position_ids, int32[B, T] attention_mask,
   float[2, B, 2, P, 4] past_0)
  => (float[B, S, 11] logits, float[2, B, 2, T, 4] present_0)
{
  e = Gather (embed, input_ids)
  p = Gather (places, position_ids)
  x = Add (e, p)
  qkv = MatMul (x, mix)
  q0, k0, v0 = Split <axis = 2> (qkv)
  heads = Constant <value = int64[4] {0, 0, 2, 4}> ()
  q1 = Reshape (q0, heads)
  k1 = Reshape (k0, heads)
  v1 = Reshape (v0, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (q1)
  k2 = Transpose <perm = [0, 2, 1, 3]> (k1)
  v2 = Transpose <perm = [0, 2, 1, 3]> (v1)
  zero = Constant <value = int64[1] {0}> ()
  k3 = Unsqueeze (k2, zero)
  v3 = Unsqueeze (v2, zero)
  new = Concat <axis = 0> (k3, v3)
  present_0 = Concat <axis = 3> (past_0, new)
  one_k, one_v = Split <axis = 0> (present_0)
  k = Squeeze (one_k, zero)
  v = Squeeze (one_v, zero)
  kt = Transpose <perm = [0, 1, 3, 2]> (k)
  s0 = MatMul (q, kt)
  half = Constant <value = float {0.5}> ()
  s1 = Mul (s0, half)
  ms = Shape (attention_mask)
  one = Constant <value = int64[1] {1}> ()
  total = Slice (ms, one, two)
  two = Constant <value = int64[1] {2}> ()
  xs = Shape (input_ids)
  count = Slice (xs, one, two)
  t0 = Squeeze (total)
  c0 = Squeeze (count)
  z0 = Constant <value = int64 {0}> ()
  u0 = Constant <value = int64 {1}> ()
  keys = Range (z0, t0, u0)
  before = Sub (t0, c0)
  rows = Range (before, t0, u0)
  column = Unsqueeze (rows, one)
  causal = LessOrEqual (keys, column)
  axes = Constant <value = int64[2] {1, 2}> ()
  m4 = Unsqueeze (attention_mask, axes)
  mb = Cast <to = 9> (m4)
  allowed = And (causal, mb)
  low = Constant <value = float {-10000.0}> ()
  s2 = Where (allowed, s1, low)
  chances = Softmax <axis = -1> (s2)
  a0 = MatMul (chances, v)
  a1 = Transpose <perm = [0, 2, 1, 3]> (a0)
  joined = Constant <value = int64[3] {0, 0, 8}> ()
  a2 = Reshape (a1, joined)
  y = Add (x, a2)
  logits = MatMul (y, head)
}
"""

#: The cache has room for the longest sequence, and is filled up to a length that is an input.
_ROOM = (
    ("float[2, B, 2, P, 4] past_0)", "float[2, B, 2, M, 4] past_0, int32[1] past_sequence_length)"),
    ("float[2, B, 2, T, 4] present_0", "float[2, B, 2, M, 4] present_0"),
    (
        "present_0 = Concat <axis = 3> (past_0, new)",
        """
  filled = Cast <to = 7> (past_sequence_length)
  end = Add (filled, count)
  three = Constant <value = int64[1] {3}> ()
  all = Constant <value = int64[1] {1000}> ()
  there = Slice (past_0, zero, filled, three)
  free = Slice (past_0, end, all, three)
  present_0 = Concat <axis = 3> (there, new, free)
  used = Slice (present_0, zero, end, three)""",
    ),
    ("Split <axis = 0> (present_0)", "Split <axis = 0> (used)"),
)

#: With onnxruntime's operators, in a buffer; the one of single tokens keeps keys in its own order.
_FUSED = """
g (int32[B, S] input_ids, int32[B, S] position_ids, int32[B, T] attention_mask,
   float[2, B, 2, M, SIZE] past_0, int32[1] past_sequence_length, int32[1] beam_width,
   int32[B, K, M] cache_indirection)
  => (float[B, S, 11] logits, float[2, B, 2, M, SIZE] present_0)
{
  e = Gather (embed, input_ids)
  p = Gather (places, position_ids)
  x = Add (e, p)
  ATTENTION
  y = Add (x, a)
  logits = MatMul (y, head)
}
"""
_PROMPTED = """
  a, present_0 = com.microsoft.Attention
    <num_heads = 2, unidirectional = 1, past_present_share_buffer = 1>
    (x, mix, mix_bias, attention_mask, past_0, , past_sequence_length)"""
_MASKED_STEP = """
  a, present_0 = com.microsoft.DecoderMaskedSelfAttention
    <num_heads = 2, past_present_share_buffer = 1>
    (x, mix, mix_bias, attention_mask, past_0, , past_sequence_length, beam_width,
     cache_indirection)"""


def graph_of(text: str, tensors: Mapping[str, Any]) -> onnx.GraphProto:
    """A graph of ONNX's text format with weights, its nodes in an order that can be computed."""
    graph = parser.parse_graph(text)
    known = {i.name for i in graph.input} | set(tensors)
    left, ordered = list(graph.node), []
    while left:
        node = next(n for n in left if all(i in known or not i for i in n.input))
        left.remove(node)
        ordered.append(node)
        known.update(node.output)
    del graph.node[:]
    graph.node.extend(ordered)
    graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in tensors.items())
    return graph


@dataclass
class Gpt:
    """A decoder with one layer of attention.

    Attributes:
        seed: Of its weights.
        scale: Of its weights.
        room: Whether its cache has room for the longest sequence.
        width: Of its tokens; attention in plain operators needs the default.
    """

    seed: int = 0
    scale: float = 1.0
    room: bool = False
    width: int = WIDTH
    tensors: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        width = self.width
        shapes = {
            "embed": (WORDS, width), "places": (PLACES, width), "mix": (width, 3 * width),
            "head": (width, WORDS),
        }  # fmt: skip
        self.tensors = weights(self.seed, shapes, self.scale)

    def fused(self, prompted: bool) -> onnx.GraphProto:
        """With onnxruntime's operators: for the prompt, or for one token."""
        text = _FUSED.replace("ATTENTION", _PROMPTED if prompted else _MASKED_STEP)
        bias = np.zeros(3 * self.width, np.float32)
        size = str(self.width // HEADS)
        return graph_of(text.replace("SIZE", size), {**self.tensors, "mix_bias": bias})

    def graph(self) -> onnx.GraphProto:
        """For the attribute `decoder`."""
        text = _GPT
        for old, new in _ROOM if self.room else ():
            text = text.replace(old, new)
        return graph_of(text, self.tensors)

    def logits(self, counted: Array, mask: Array | None = None) -> Logits:
        """By whole sequences; which tokens of prompts have positions, and which are seen."""
        w = self.tensors

        def found(tokens: Array) -> Array:
            rows, length = tokens.shape
            ones = np.ones((rows, length - counted.shape[1]), np.int64)

            def whole(given: Array) -> Array:
                return np.concatenate([np.repeat(given, rows // len(given), 0), ones], 1)

            counts = whole(counted)
            at = np.where(counts != 0, np.cumsum(counts, 1) - 1, 0).astype(np.int64)
            x = w["embed"][tokens] + w["places"][at]
            q, k, v = (split_heads(part) for part in np.split(x @ w["mix"], 3, 2))
            causal = np.tril(np.ones((length, length), bool))
            allowed = causal & (whole(counted if mask is None else mask) != 0)[:, None, None, :]
            return ((x + attend(q, k, v, allowed)) @ w["head"])[:, -1]

        return found


# -- with an encoder, like T5 and Whisper -----------------------------------------------------

_ENCODE = """
  taken = {take}
  h0 = MatMul (taken, encode)
  encoder_hidden_states = Tanh (h0)
  ck0 = MatMul (encoder_hidden_states, cross_k)
  cv0 = MatMul (encoder_hidden_states, cross_v)
  ck1 = Reshape (ck0, heads)
  cv1 = Reshape (cv0, heads)
  present_key_cross_0 = Transpose <perm = [0, 2, 1, 3]> (ck1)
  present_value_cross_0 = Transpose <perm = [0, 2, 1, 3]> (cv1)
"""

_DECODE = """
  x = Gather (embed, {ids})
  qkv = MatMul (x, mix)
  q0, k0, v0 = Split <axis = 2> (qkv)
  q1 = Reshape (q0, heads)
  k1 = Reshape (k0, heads)
  v1 = Reshape (v0, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (q1)
  k2 = Transpose <perm = [0, 2, 1, 3]> (k1)
  v2 = Transpose <perm = [0, 2, 1, 3]> (v1)
  present_key_self_0 = {join_k}
  present_value_self_0 = {join_v}
  kt = Transpose <perm = [0, 1, 3, 2]> (present_key_self_0)
  half = Constant <value = float {{0.5}}> ()
  s0 = MatMul (q, kt)
  s1 = Mul (s0, half)
  ks = Shape <start = 2, end = 3> (present_key_self_0)
  qs = Shape <start = 1, end = 2> ({ids})
  t0 = Squeeze (ks)
  c0 = Squeeze (qs)
  z0 = Constant <value = int64 {{0}}> ()
  u0 = Constant <value = int64 {{1}}> ()
  one = Constant <value = int64[1] {{1}}> ()
  keys = Range (z0, t0, u0)
  before = Sub (t0, c0)
  rows = Range (before, t0, u0)
  column = Unsqueeze (rows, one)
  causal = LessOrEqual (keys, column)
  low = Constant <value = float {{-10000.0}}> ()
  s2 = Where (causal, s1, low)
  chances = Softmax <axis = -1> (s2)
  a0 = MatMul (chances, present_value_self_0)
  a1 = Transpose <perm = [0, 2, 1, 3]> (a0)
  joined = Constant <value = int64[3] {{0, 0, 8}}> ()
  a2 = Reshape (a1, joined)
  y = Add (x, a2)
  cq0 = MatMul (y, cross_q)
  cq1 = Reshape (cq0, heads)
  cq = Transpose <perm = [0, 2, 1, 3]> (cq1)
  ckt = Transpose <perm = [0, 1, 3, 2]> ({cross}_key_cross_0)
  cs0 = MatMul (cq, ckt)
  cs1 = Mul (cs0, half)
  {masked}
  cchances = Softmax <axis = -1> (cs2)
  ca0 = MatMul (cchances, {cross}_value_cross_0)
  ca1 = Transpose <perm = [0, 2, 1, 3]> (ca0)
  ca2 = Reshape (ca1, joined)
  z = Add (y, ca2)
  logits = MatMul (z, head)
"""

_HEADS = "heads = Constant <value = int64[4] {0, 0, 2, 4}> ()"

_MASKED = """
  axes = Constant <value = int64[2] {1, 2}> ()
  m4 = Unsqueeze (encoder_attention_mask, axes)
  mb = Cast <to = 9> (m4)
  cs2 = Where (mb, cs1, low)
"""

_ENCODED_WEIGHTS = {
    "embed": (WORDS, WIDTH), "mix": (WIDTH, 3 * WIDTH), "head": (WIDTH, WORDS),
    "encode": (WIDTH, WIDTH), "cross_k": (WIDTH, WIDTH), "cross_v": (WIDTH, WIDTH),
    "cross_q": (WIDTH, WIDTH),
}  # fmt: skip


@dataclass
class Encoded:
    """An encoder and a decoder, of one layer each.

    Attributes:
        seed: Of its weights.
        scale: Of its weights.
        features: Whether the encoder reads features (batch, width, frames), or tokens.
        whole: Whether the encoder gives the first logits, too.
    """

    seed: int = 0
    scale: float = 1.0
    features: bool = False
    whole: bool = True
    tensors: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = weights(self.seed, _ENCODED_WEIGHTS, self.scale)

    def _given(self, *names: str) -> dict[str, Any]:
        return {n: self.tensors[n] for n in names}

    def encoder(self) -> onnx.GraphProto:
        """For the attribute `encoder`."""
        own, cross = "float[B, 2, D, 4]", "float[B, 2, E, 4]"
        kind = (
            "float[B, 8, E] encoder_input_ids" if self.features else "int32[B, E] encoder_input_ids"
        )
        take = "Gather (embed, encoder_input_ids)"
        if self.features:
            take = "Transpose <perm = [0, 2, 1]> (encoder_input_ids)"
        else:
            kind += ", int32[B, E] encoder_attention_mask"
        outputs = f"{cross} present_key_cross_0, {cross} present_value_cross_0"
        names = ["encode", "cross_k", "cross_v"]
        body = _HEADS + _ENCODE.format(take=take)
        if self.whole:
            kind += ", int32[B, D] decoder_input_ids"
            outputs = (
                f"float[B, D, 11] logits, float[B, E, 8] encoder_hidden_states, "
                f"{own} present_key_self_0, {own} present_value_self_0, {outputs}"
            )
            masked = "cs2 = Identity (cs1)" if self.features else _MASKED
            body += _DECODE.format(
                ids="decoder_input_ids", join_k="Identity (k2)", join_v="Identity (v2)",
                cross="present", masked=masked,
            )  # fmt: skip
            names += ["mix", "head", "cross_q", "embed"]
        elif not self.features:
            names.append("embed")
        return graph_of(f"e ({kind}) => ({outputs}) {{ {body} }}", self._given(*names))

    def decoder(self) -> onnx.GraphProto:
        """For the attribute `decoder`."""
        own, cross = "float[B, 2, P, 4]", "float[B, 2, E, 4]"
        inputs = "int32[B, 1] input_ids"
        if not self.features:
            inputs += ", int32[B, E] encoder_attention_mask"
        inputs += (
            f", {own} past_key_self_0, {own} past_value_self_0, "
            f"{cross} past_key_cross_0, {cross} past_value_cross_0"
        )
        new = "float[B, 2, Q, 4]"
        outputs = f"float[B, 1, 11] logits, {new} present_key_self_0, {new} present_value_self_0"
        body = _HEADS + _DECODE.format(
            ids="input_ids", cross="past",
            join_k="Concat <axis = 2> (past_key_self_0, k2)",
            join_v="Concat <axis = 2> (past_value_self_0, v2)",
            masked="cs2 = Identity (cs1)" if self.features else _MASKED,
        )  # fmt: skip
        given = self._given("embed", "mix", "head", "cross_q")
        return graph_of(f"d ({inputs}) => ({outputs}) {{ {body} }}", given)

    def logits(self, source: Array, mask: Array) -> Logits:
        """By whole sequences of the decoder, each row's source repeated."""
        w = self.tensors
        taken = source.transpose(0, 2, 1) if self.features else w["embed"][source]
        hidden = np.tanh(taken @ w["encode"])

        def found(tokens: Array) -> Array:
            rows, length = tokens.shape
            copies = rows // len(source)
            h = np.repeat(hidden, copies, 0)
            seen = (np.repeat(mask, copies, 0) != 0)[:, None, None, :]
            x = w["embed"][tokens]
            q, k, v = (split_heads(part) for part in np.split(x @ w["mix"], 3, 2))
            y = x + attend(q, k, v, np.tril(np.ones((length, length), bool)))
            k, v = (split_heads(h @ w[n]) for n in ("cross_k", "cross_v"))
            y = y + attend(split_heads(y @ w["cross_q"]), k, v, seen)
            return (y @ w["head"])[:, -1]

        return found


# -- searches ---------------------------------------------------------------------------------


@dataclass
class Search:
    """What the operators are given."""

    prompt: Array
    longest: int
    end: int
    padding: int
    least: int = 0
    beams: int = 1
    returned: int = 1
    length_penalty: float = 1.0
    repetition: float = 1.0
    ngram: int = 0
    vocabulary: Array | None = None
    first_vocabulary: Array | None = None
    early: bool = False
    temperature: float = 1.0
    presence: Array | None = None

    def ruled(self, scores: Array, sequences: Array, first: bool) -> Array:
        """Scores (rows, words) after the rules."""
        scores = scores.copy()
        copies = len(scores) // len(self.prompt)
        for row, sequence in zip(scores, sequences, strict=True):
            if self.repetition != 1:
                for word in set(sequence.tolist()):
                    row[word] *= self.repetition if row[word] < 0 else 1 / self.repetition
            if self.ngram and len(sequence) >= self.ngram:
                runs = [tuple(sequence[k : k + self.ngram])
                        for k in range(len(sequence) - self.ngram + 1)]  # fmt: skip
                newest = tuple(sequence[len(sequence) - self.ngram + 1 :])
                for run in runs:
                    if run[:-1] == newest:
                        row[run[-1]] = LOWEST
        if self.vocabulary is not None:
            scores[:, self.vocabulary == 0] = LOWEST
        if first and self.first_vocabulary is not None:
            scores[np.repeat(self.first_vocabulary, copies, 0) == 0] = LOWEST
        if sequences.shape[1] < self.least:
            scores[:, self.end] = LOWEST
        scores = scores / self.temperature
        if self.presence is not None:
            scores = scores - np.repeat(self.presence, copies, 0)
        return scores

    def greedy(self, logits: Logits) -> Array:
        """Sequences of the likeliest tokens."""
        tokens, done = self.prompt, np.zeros(len(self.prompt), bool)
        while tokens.shape[1] < self.longest and not done.all():
            scores = self.ruled(logits(tokens), tokens, tokens.shape[1] == self.prompt.shape[1])
            chosen = scores.argmax(1)
            done |= chosen == self.end
            chosen = np.where(done, self.padding, chosen)
            tokens = np.concatenate([tokens, chosen[:, None]], 1)
        return self.padded(tokens)

    def padded(self, tokens: Array) -> Array:
        """Up to the longest length."""
        room = self.longest - tokens.shape[-1]
        ends = [(0, 0)] * (tokens.ndim - 1) + [(0, room)]
        return np.pad(tokens, ends, constant_values=self.padding).astype(np.int32)

    def beam(self, logits: Logits) -> tuple[Array, Array, Array]:
        """Sequences, their scores, scores of all steps."""
        batch, start = self.prompt.shape
        tokens = np.repeat(self.prompt, self.beams, 0)
        sums = np.tile(np.array([0.0] + [-1e9] * (self.beams - 1), np.float32), batch)
        ended: list[list[tuple[float, Array]]] = [[] for _ in range(batch)]
        done = [False] * batch
        steps = []

        def keep(b: int, total: float, sequence: Array) -> None:
            score = total / len(sequence) ** self.length_penalty
            ended[b].append((score, sequence))
            ended[b].sort(key=lambda pair: -pair[0])
            del ended[b][self.beams :]

        while tokens.shape[1] < self.longest and not all(done):
            length = tokens.shape[1]
            raw = logits(tokens).astype(np.float64)
            chances = raw - raw.max(1, keepdims=True)
            chances = chances - np.log(np.exp(chances).sum(1, keepdims=True))
            totals = self.ruled(chances, tokens, length == start) + sums[:, None]
            steps.append(totals.reshape(batch, self.beams, -1))
            rows, kept, sources = [], [], []
            for b in range(batch):
                flat = totals[b * self.beams : (b + 1) * self.beams].reshape(-1)
                best = np.argsort(-flat, kind="stable")[: 2 * self.beams]
                if done[b]:
                    rows += [self.padding] * self.beams
                    kept += [0.0] * self.beams
                    sources += [b * self.beams] * self.beams
                    continue
                going = 0
                for rank, place in enumerate(best):
                    source, word = b * self.beams + place // WORDS, place % WORDS
                    if word == self.end:
                        if rank < self.beams:
                            keep(b, flat[place], tokens[source])
                        continue
                    if going < self.beams:
                        rows.append(word)
                        kept.append(flat[place])
                        sources.append(source)
                        going += 1
                if len(ended[b]) == self.beams:
                    hope = flat[best[0]] / length**self.length_penalty
                    done[b] = self.early or not ended[b][-1][0] < hope
            tokens = np.concatenate([tokens[sources], np.array(rows)[:, None]], 1)
            sums = np.array(kept)
        for b in range(batch):
            if not done[b]:
                for k in range(b * self.beams, (b + 1) * self.beams):
                    keep(b, sums[k], tokens[k])
        best_ended = [pairs[: self.returned] for pairs in ended]
        found = np.stack([[self.padded(s) for _, s in pairs] for pairs in best_ended])
        scores = np.array([[score for score, _ in pairs] for pairs in best_ended])
        everything = np.zeros((self.longest - start, *steps[0].shape))
        everything[: len(steps)] = steps
        return found, scores.astype(np.float32), everything.clip(LOWEST).astype(np.float32)


def one_number(value: float, dtype: type = np.int32) -> Array:
    """As an input of one element."""
    return np.array([value], dtype)


def generating_model(
    op_type: str,
    inputs: Mapping[str, tuple[Any, bool]],
    attributes: Mapping[str, Any],
    outputs: Mapping[str, Any],
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of one node.

    Args:
        op_type: The operator.
        inputs: Name -> (array or None, whether it is a constant), in order.
        attributes: Of the node.
        outputs: Name -> type.
        opset: Of ONNX.
    """
    declared, constants = [], []
    for name, (x, fixed) in inputs.items():
        if x is None:
            continue
        if fixed:
            constants.append(numpy_helper.from_array(x, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(x.dtype)
            shape = [f"{name}_{k}" for k in range(x.ndim)]
            declared.append(helper.make_tensor_value_info(name, kind, shape))
    names = [name if x is not None else "" for name, (x, _) in inputs.items()]
    node = helper.make_node(
        op_type, names, list(outputs), name="it", domain="com.microsoft", **attributes
    )
    values = [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()]
    graph = helper.make_graph([node], "g", declared, values, constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
