"""Digests of the cache's keys: of one model, for each option that may decide on its code."""

from collections.abc import Iterator
from unittest import mock

import numpy as np

from sardonyx.compiler import drive
from sardonyx.compiler.options import EngineOptions
from sardonyx.cpu.provider import CpuProvider
from tests.replay.digests import digest

#: Name of an option -> another value than its default. What names no value here decides on how a
#: session runs, never on what is compiled.
CHANGES = {
    "optimization_level": 0,
    "without": frozenset({"fold"}),
    "free_dimension_overrides": {"N": 4},
    "denoted_sizes": {"DATA_BATCH": 4},
    "folder": "weights",
    "initializers": {"w": np.arange(3.0)},
    "data_files": {"w.bin": b"123"},
    "fed": ("w",),
    "fetched": ("y",),
    "general": True,
    "ranks": {"x": 2},
    "shapes": {"s": ("int64", (3,))},
    "decided": True,
    "ones": frozenset({"N"}),
    "winograd": False,
    "bf16_products": True,
    "branches": 2,
    "in_growable_buffers": True,
}


class _Provider(CpuProvider):
    """The processor's, with a key that no machine decides."""

    def __init__(self):
        super().__init__()
        self.key = "cpu"


def keys() -> Iterator[tuple[str, str]]:
    """Names of options, and the digest of a model's key where that one differs from its default."""
    with mock.patch.object(drive, "engine_digest", lambda: "engine"):
        for name, change in {"defaults": {}, **CHANGES}.items():
            options = EngineOptions(**({} if name == "defaults" else {name: change}))
            key = drive.model_key(b"model", None, options, _Provider())
            yield name, digest(key)
