"""Small decoders with random weights, with the inputs that exporters give such models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

LAYERS, HEADS, KV_HEADS, WIDTH, VOCABULARY, LONGEST = 2, 4, 2, 8, 61, 64
SIZE = HEADS * WIDTH

_MASK = """
    shape = Shape(attention_mask)
    count = Shape(input_ids)
    total = Gather(shape, one)
    length = Gather(count, one)
    first = Sub(total, length)
    rows = Range(first, total, one)
    columns = Range(zero, total, one)
    rows_2 = Unsqueeze(rows, axis_1)
    later = Greater(columns, rows_2)
    hidden = Sub(one, attention_mask)
    is_hidden = Cast<to=9>(hidden)
    hidden_4 = Unsqueeze(is_hidden, axes_12)
    either = Or(later, hidden_4)
    bias = Where(either, low, zero_f)
"""
_LENGTHS = """
    sums = ReduceSum<keepdims=0>(attention_mask, axis_1)
    sums_less = Sub(sums, one)
    seqlens_k = Cast<to=6>(sums_less)
    shape = Shape(attention_mask)
    total_long = Gather(shape, one)
    total_sequence_length = Cast<to=6>(total_long)
"""


def decoder(
    *,
    grouped: bool = False,
    half: bool = False,
    positions: bool = True,
    room: int | None = None,
    step: str = "S",
    past: str = "past_key_values.{n}.{kind}",
    present: str = "present.{n}.{kind}",
    direct: bool = False,
    extra: Iterable[str] = (),
) -> bytes:
    """A model as bytes.

    Args:
        grouped: With GroupQueryAttention.
        half: With a cache of float16.
        positions: With an input for positions.
        room: The size of a cache that does not grow.
        step: How many tokens a step takes.
        past: Names of the caches' inputs.
        present: Names of the caches' outputs.
        direct: Whether `seqlens_k` and `total_sequence_length` are inputs (grouped only).
        extra: Further inputs, as text.
    """
    kind, number = ("float16", 10) if half else ("float", 1)
    heads = KV_HEADS if grouped else HEADS
    names = [{"n": n, "kind": k} for n in range(LAYERS) for k in ("key", "value")]
    lines = ["x_t = Gather(embedding, input_ids)"]
    if positions:
        lines += ["x_p = Gather(places, position_ids)", "x0 = Add(x_t, x_p)"]
    else:
        lines += ["x0 = Identity(x_t)"]
    if not direct:
        lines.append(_LENGTHS if grouped else _MASK)
    for n in range(LAYERS):
        lines += _layer(n, grouped, number, past, present)
    lines.append(f"logits = MatMul(x{LAYERS}, head)")
    length = "P" if room is None else str(room)
    cache = f"{kind}[B,{heads},%s,{WIDTH}] %s"
    inputs = [f"int64[B,{step}] input_ids"]
    if not direct:
        inputs.append("int64[B,T] attention_mask")
    else:
        inputs += ["int32[B] seqlens_k", "int32[1] total_sequence_length"]
    if positions:
        inputs.append(f"int64[B,{step}] position_ids")
    inputs += [*extra, *(cache % (length, _plain(past.format(**k))) for k in names)]
    outputs = [f"float[B,{step},{VOCABULARY}] logits"]
    outputs += [cache % ("T", _plain(present.format(**k))) for k in names]
    body = "\n".join(lines)
    text = (
        '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]> '
        f"decoder ({', '.join(inputs)}) => ({', '.join(outputs)}) {{ {body} }}"
    )
    model = parser.parse_model(text)
    for name, value in _weights(heads).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    _rename(model, {_plain(t.format(**k)): t.format(**k) for t in (past, present) for k in names})
    return model.SerializeToString()


def _layer(n: int, grouped: bool, number: int, past: str, present: str) -> list[str]:
    def name(text: str, kind: str) -> str:
        return _plain(text.format(n=n, kind=kind))

    pk, pv, nk, nv = (name(t, k) for t in (past, present) for k in ("key", "value"))
    lines = [f"{k}{n} = MatMul(x{n}, w{k}{n})" for k in "qkv"]
    if grouped:
        lines += [f"{k}{n}h = Cast<to={number}>({k}{n})" for k in "qkv"]
        lines += [
            f"o{n}h, {nk}, {nv} = com.microsoft.GroupQueryAttention"
            f"<num_heads={HEADS}, kv_num_heads={KV_HEADS}>"
            f"(q{n}h, k{n}h, v{n}h, {pk}, {pv}, seqlens_k, total_sequence_length)",
            f"o{n} = Cast<to=1>(o{n}h)",
        ]
    else:
        for k in "qkv":
            lines += [f"{k}{n}r = Reshape({k}{n}, split)"]
            lines += [f"{k}{n}t = Transpose<perm=[0,2,1,3]>({k}{n}r)"]
        lines += [f"{k}{n}h = Cast<to={number}>({k}{n}t)" for k in "kv"]
        lines += [
            f"{nk} = Concat<axis=2>({pk}, k{n}h)", f"{nv} = Concat<axis=2>({pv}, v{n}h)",
            f"keys{n} = Cast<to=1>({nk})", f"values{n} = Cast<to=1>({nv})",
            f"keys{n}t = Transpose<perm=[0,1,3,2]>(keys{n})",
            f"s{n} = MatMul(q{n}t, keys{n}t)", f"s{n}s = Mul(s{n}, scale)",
            f"s{n}b = Add(s{n}s, bias)", f"p{n} = Softmax<axis=-1>(s{n}b)",
            f"c{n} = MatMul(p{n}, values{n})", f"c{n}t = Transpose<perm=[0,2,1,3]>(c{n})",
            f"o{n} = Reshape(c{n}t, joined)",
        ]  # fmt: skip
    return [*lines, f"d{n} = MatMul(o{n}, wo{n})", f"x{n + 1} = Add(x{n}, d{n})"]


def _weights(heads: int) -> dict[str, Any]:
    random = np.random.default_rng(3)
    weights: dict[str, Any] = {
        "embedding": random.standard_normal((VOCABULARY, SIZE)).astype(np.float32),
        "places": random.standard_normal((LONGEST, SIZE)).astype(np.float32),
        "head": random.standard_normal((SIZE, VOCABULARY)).astype(np.float32),
        "split": np.array([0, 0, -1, WIDTH]), "joined": np.array([0, 0, SIZE]),
        "scale": np.float32(WIDTH**-0.5), "one": np.array(1), "zero": np.array(0),
        "axis_1": np.array([1]), "axes_12": np.array([1, 2]),
        "low": np.float32(-1e9), "zero_f": np.float32(0),
    }  # fmt: skip
    for n in range(LAYERS):
        for kind in "qkvo":
            width = heads * WIDTH if kind in "kv" else SIZE
            w = random.standard_normal((SIZE, width)) / SIZE**0.5
            weights[f"w{kind}{n}"] = w.astype(np.float32)
    return weights


def _plain(name: str) -> str:
    """A name that ONNX's text format can have."""
    return name.replace(".", "_dot_")


def _rename(model: onnx.ModelProto, names: dict[str, str]) -> None:
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [names.get(n, n) for n in node.output]
