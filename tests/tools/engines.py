"""Engines that are none: modules with onnxruntime's names, which note what they are asked."""

from __future__ import annotations

import threading
import time
import types
from typing import Any

import numpy as np


class Options:
    def __init__(self) -> None:
        self.config: dict[str, str] = {}
        self.sizes: dict[str, int] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        self.config[key] = value

    def add_run_config_entry(self, key: str, value: str) -> None:
        self.config[key] = value

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        self.sizes[name] = size


def fake(seconds: float = 0.0, fail_at: int = 0, there: tuple[str, ...] = ("CPU",)) -> Any:
    """A module whose sessions double x; `module.made` and `module.most` are what happened."""
    module: Any = types.SimpleNamespace(made=[], most=0, runs=0, now=0)
    lock = threading.Lock()
    node = types.SimpleNamespace(name="x", type="tensor(float)", shape=["N"])

    class Session:
        def __init__(self, source: Any, options: Any, providers: Any) -> None:
            module.made.append((source, options, providers))

        def get_inputs(self) -> list[Any]:
            return [node]

        def get_outputs(self) -> list[Any]:
            return [types.SimpleNamespace(name="y")]

        def run(self, names: Any, feeds: Any, *options: Any) -> list[Any]:
            with lock:
                module.now += 1
                module.runs += 1
                module.most = max(module.most, module.now)
            time.sleep(seconds)
            with lock:
                module.now -= 1
            if fail_at and module.runs >= fail_at:
                raise RuntimeError("not\ntoday")
            return [np.asarray(feeds["x"]) * 2]

    module.InferenceSession = Session
    module.SessionOptions = Options
    module.RunOptions = Options
    module.OrtValue = types.SimpleNamespace()
    module.get_available_providers = lambda: [f"{name}ExecutionProvider" for name in there]
    module.GraphOptimizationLevel = types.SimpleNamespace(
        ORT_DISABLE_ALL=0, ORT_ENABLE_BASIC=1, ORT_ENABLE_EXTENDED=2, ORT_ENABLE_LAYOUT=3,
        ORT_ENABLE_ALL=99,
    )  # fmt: skip
    module.ExecutionMode = types.SimpleNamespace(ORT_SEQUENTIAL=0, ORT_PARALLEL=1)
    return module
