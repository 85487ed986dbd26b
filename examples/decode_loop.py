"""A decoder that writes one token after another; its keys and values never leave the device.

    python -m examples.decode_loop

Each step reads the cache (`past`) and gives it one longer (`present`): on a GPU the keys and values
of the new token are written behind those that are there, nothing is copied. When the memory is
full, twice as much takes its place; so a session sees few sizes of memory, and captures few graphs.
The token that a step chooses is the next step's input where it lies: the host sees eight bytes of
each step.

Without a GPU there is no copy to save: a step takes as long as with NumPy arrays, or up to 15 %
longer, as this model is so tiny that wrapping its values counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import sardonyx as ort
from examples.device import device_of, milliseconds, session_of, without_a_gpu

LAYERS, HEADS, WIDTH, VOCABULARY = 2, 4, 32, 512
_NAMES = [f"{kind}_{n}" for n in range(LAYERS) for kind in ("key", "value")]
_PAST = [f"past_{name}" for name in _NAMES]


def model() -> tuple[str, dict[str, Any]]:
    """A small transformer with random weights, of which every step takes one token."""
    size, random = HEADS * WIDTH, np.random.default_rng(0)
    weights: dict[str, Any] = {
        "embedding": random.standard_normal((VOCABULARY, size)).astype(np.float32),
        "split": np.array([0, 0, HEADS, WIDTH]), "joined": np.array([0, 0, size]),
        "scale": np.float32(WIDTH**-0.5),
    }  # fmt: skip
    lines = ["x0 = Gather(embedding, token)"]
    for n in range(LAYERS):
        for kind in ("q", "k", "v", "o"):
            w = random.standard_normal((size, size)) / size**0.5
            weights[f"w{kind}{n}"] = w.astype(np.float32)
        for kind in ("q", "k", "v"):
            lines += [
                f"{kind}{n}a = MatMul(x{n}, w{kind}{n})",
                f"{kind}{n}b = Reshape({kind}{n}a, split)",
                f"{kind}{n} = Transpose<perm=[0,2,1,3]>({kind}{n}b)",
            ]
        lines += [
            f"present_key_{n} = Concat<axis=2>(past_key_{n}, k{n})",
            f"present_value_{n} = Concat<axis=2>(past_value_{n}, v{n})",
            f"t{n} = Transpose<perm=[0,1,3,2]>(present_key_{n})",
            f"s{n}a = MatMul(q{n}, t{n})", f"s{n} = Mul(s{n}a, scale)",
            f"p{n} = Softmax<axis=-1>(s{n})", f"c{n}a = MatMul(p{n}, present_value_{n})",
            f"c{n}b = Transpose<perm=[0,2,1,3]>(c{n}a)", f"c{n} = Reshape(c{n}b, joined)",
            f"d{n} = MatMul(c{n}, wo{n})", f"x{n + 1} = Add(x{n}, d{n})",
        ]  # fmt: skip
    lines += [
        "e = Transpose<perm=[1,0]>(embedding)", f"logits = MatMul(x{LAYERS}, e)",
        "next = ArgMax<axis=-1, keepdims=0>(logits)",
    ]  # fmt: skip
    cache = f"float[1,{HEADS},%s,{WIDTH}] %s_%s"
    past = ", ".join(cache % ("P", "past", name) for name in _NAMES)
    present = ", ".join(cache % ("T", "present", name) for name in _NAMES)
    text = f"decoder (int64[1,1] token, {past}) => (int64[1,1] next, {present})"
    return f"{text} {{ {' '.join(lines)} }}", weights


class Cache:
    """Keys and values where they are computed, with room for so many tokens at first."""

    def __init__(self, session: ort.InferenceSession, room: int) -> None:
        self._session, self._device, self.room = session, device_of(session), room
        self._values: list[ort.OrtValue] = []

    def start(self, token: int) -> None:
        """The first token; everything before it is forgotten."""
        first = np.full((1, 1), token, np.int64)
        self._values = [ort.OrtValue.ortvalue_from_numpy(first, self._device, 0)]
        shape = [1, HEADS, 0, WIDTH]
        for _ in _NAMES:
            value = ort.OrtValue.ortvalue_with_room(shape, np.float32, 2, self.room, self._device)
            self._values.append(value)

    def step(self) -> int:
        """One token more."""
        feeds = dict(zip(("token", *_PAST), self._values, strict=True))
        self._values = self._session.run_with_ort_values(None, feeds)
        return int(self._values[0].numpy()[0, 0])


def plain(session: ort.InferenceSession, token: int, steps: int) -> tuple[list[int], int]:
    """The same with arrays of NumPy; also how many bytes each way they have."""
    empty = np.zeros((1, HEADS, 0, WIDTH), np.float32)
    past, tokens, size = dict.fromkeys(_PAST, empty), [], 0
    for _ in range(steps):
        feeds = {"token": np.full((1, 1), token, np.int64), **past}
        following, *present = session.run(None, feeds)
        size += sum(x.nbytes for x in (*feeds.values(), following, *present))
        past = dict(zip(_PAST, present, strict=True))
        token = int(following[0, 0])
        tokens.append(token)
    return tokens, size


def run(steps: int = 256, room: int = 64) -> dict[str, Any]:
    """Both ways; gives what each took."""
    session = session_of(*model())
    cache = Cache(session, room)

    def bound() -> list[int]:
        cache.start(7)
        return [cache.step() for _ in range(steps)]

    tokens, size = plain(session, 7, steps)
    assert bound() == tokens, "both ways choose the same tokens"
    return {
        "device": device_of(session), "tokens": tokens, "steps": steps,
        "bytes per step": 8, "bytes per step, NumPy": size // steps,
        "ms per step": milliseconds(bound, 3) / steps,
        "ms per step, NumPy": milliseconds(lambda: plain(session, 7, steps), 3) / steps,
    }  # fmt: skip


def told(found: dict[str, Any]) -> str:
    """What `run` found, in words."""
    copied = others = ""
    if found["device"] == "cuda":
        copied = f" and {found['bytes per step']} bytes copied"
        others = f" and {found['bytes per step, NumPy']}"
    return (
        f"{found['steps']} tokens on {found['device']}: {found['ms per step']:.3f} ms{copied} for"
        f" each; with NumPy arrays {found['ms per step, NumPy']:.3f} ms{others}"
        f"{without_a_gpu(found['device'])}"
    )


if __name__ == "__main__":
    print(told(run()))
