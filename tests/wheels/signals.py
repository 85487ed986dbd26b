"""Sounds made by integer arithmetic, and how the packages that ship the models feed them.

Signals of a batch lie interleaved, as channels do in a sound file: what a session is fed is a view
that steps over the other signals.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

# Pitch at a burst's start and end, and the resonances of its vowel, in Hz.
_VOWELS = (
    (110, 150, (700, 1220, 2600)),
    (210, 160, (300, 2300, 3000)),
    (130, 100, (450, 800, 2830)),
    (150, 220, (530, 1840, 2480)),
)


def noise(samples: int, seed: int) -> Any:
    """Integers within +-2**15 by a linear congruential formula modulo 2**32."""
    factor, addend = np.uint32(1664525), np.uint32(1013904223)
    powers = np.cumprod(np.full(samples, factor), dtype=np.uint32)
    sums = np.cumsum(np.concatenate([np.ones(1, np.uint32), powers[:-1]]), dtype=np.uint32)
    return (powers * np.uint32(seed) + sums * addend).view(np.int32) >> 16


def _sine(phase: Any) -> Any:
    """Two parabolas for a sine: a turn is 2**32, the amplitude 2**15."""
    place = phase.view(np.int32).astype(np.int64) >> 16
    return place * (32768 - np.abs(place)) >> 13


def _burst(samples: int, rate: int, vowel: int) -> Any:
    """A gliding tone whose harmonics are loud near three resonances; four swells a second."""
    start, end, resonances = _VOWELS[vowel % len(_VOWELS)]
    index = np.arange(samples, dtype=np.int64)
    pitch = start * 256 + (end - start) * 256 * index // samples
    phase = np.cumsum((pitch << 24) // rate, dtype=np.int64).astype(np.uint32)
    total = np.zeros(samples, np.int64)
    for harmonic in range(1, min(3600, rate // 2) // max(start, end)):
        frequency = harmonic * (start + end) // 2
        loudness = sum(400_000 // (400 + (frequency - at) ** 2 // 25) for at in resonances)
        total += _sine(phase * np.uint32(harmonic)) * loudness >> 10
    swell = np.abs(index * 8192 // rate % 2048 - 1024)
    return total * (1024 - swell) >> 13


@functools.cache
def speech(samples: int, rate: int, seed: int = 1) -> Any:
    """Bursts of 1.5 s after silences of 1 s, over a floor of noise, as float32 within +-1."""
    sound = noise(samples, seed).astype(np.int64) >> 6
    length = rate * 3 // 2
    for number, start in enumerate(range(rate, samples, rate * 5 // 2)):
        stop = min(start + length, samples)
        sound[start:stop] += _burst(length, rate, number + seed)[: stop - start]
    return (sound.clip(-32768, 32767).astype(np.float32)) / np.float32(32768)


def _interleave(*signals: Any) -> Any:
    """Signals (B, N) in a memory of N x B, the shorter ones followed by zeros."""
    memory = np.zeros((max(map(len, signals)), len(signals)), np.float32)
    for column, signal in enumerate(signals):
        memory[: len(signal), column] = signal
    return memory.T


def batch(*lengths: int, rate: int = 16000) -> dict[str, Any]:
    """onnx-asr: signals of several lengths, and the lengths. They start within a burst."""
    signals = [speech(rate + length, rate, seed)[rate:] for seed, length in enumerate(lengths, 1)]
    return {"waveforms": _interleave(*signals), "waveforms_lens": np.array(lengths)}


def stream(windows: int, rate: int, signals: int = 1) -> dict[str, Any]:
    """Silero: the first call's state, and all windows in one piece after a context of zeros."""
    hop, context = _window(rate)
    sounds = [speech(windows * hop, rate, seed + 1) for seed in range(signals)]
    silence = np.zeros(context, np.float32)
    return {
        "input": _interleave(*(np.concatenate([silence, sound]) for sound in sounds)),
        "state": np.zeros((2, signals, 128), np.float32),
        "sr": np.array(rate, np.int64),
    }


def windows(feed: dict[str, Any]) -> Iterator[Any]:
    """What each call of a stream is fed: 32 ms, and the 4 ms before them."""
    hop, context = _window(int(feed["sr"]))
    signals = feed["input"]
    for start in range(0, signals.shape[1] - context, hop):
        yield signals[:, start : start + context + hop]


def _window(rate: int) -> tuple[int, int]:
    """New samples of a call, and old ones."""
    return rate * 32 // 1000, rate * 4 // 1000
