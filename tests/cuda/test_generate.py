"""`generate` with caches in memory of a device."""

from __future__ import annotations

from typing import Any

import pytest

import sardonyx as ort
from tests.support.decoders import decoder
from tests.support.fake_driver import FakeDriver

PROMPTS = [[5, 17, 3, 40], [9], [22, 8]]
MODELS: dict[str, dict[str, Any]] = {
    "past and present": {},
    "half cache": {"half": True},
    "grouped": {"grouped": True},
}


def _session(**options: Any) -> ort.InferenceSession:
    return ort.InferenceSession(decoder(**options), providers=["CUDAExecutionProvider"])


@pytest.mark.parametrize("name", MODELS)
def test_as_on_the_processor(gpu: FakeDriver | None, name: str) -> None:
    expected = ort.generate(decoder(**MODELS[name]), PROMPTS, max_new_tokens=5).tokens
    assert ort.generate(_session(**MODELS[name]), PROMPTS, max_new_tokens=5).tokens == expected


@pytest.mark.parametrize("prompt", [[5, 17, 3], [[5, 17, 3], [9]]])
def test_caches_are_not_copied(lazy: FakeDriver, prompt: Any) -> None:
    """Scores come to the host, tokens and masks go to the device; nothing else moves."""
    found = ort.generate(_session(), prompt, max_new_tokens=6)
    next(found)
    before = dict(lazy.copied)
    steps = [next(found) for _ in range(5)]
    assert len(steps) == 5
    copied = {k: n - before.get(k, 0) for k, n in lazy.copied.items() if n != before.get(k, 0)}
    rows = 1 if isinstance(prompt[0], int) else 2
    assert not {k for k in copied if k == "device, device"}
    assert copied.get("device, pinned", 0) + copied.get("device, host", 0) <= 5 * rows * 61 * 4
