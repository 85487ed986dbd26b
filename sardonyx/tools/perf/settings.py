"""What is measured, and how: plain data, which another process can be told."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sardonyx.api.spelling import nearest
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.tools.providers import PROVIDERS, short_name

#: Levels of optimisation by number, as members of `GraphOptimizationLevel` are called.
LEVELS = {
    0: "ORT_DISABLE_ALL", 1: "ORT_ENABLE_BASIC", 2: "ORT_ENABLE_EXTENDED",
    3: "ORT_ENABLE_LAYOUT", 99: "ORT_ENABLE_ALL",
}  # fmt: skip

_MOST_SECONDS = 10**7


@dataclass(frozen=True)
class PerfSettings:
    """One way to run a model.

    Attributes:
        engine: A module with onnxruntime's names.
        provider: `cpu` or `cuda`.
        provider_options: Options of that provider.
        seconds: How long to measure.
        times: How many requests to measure, whatever time that takes; 0 for `seconds`.
        warmup: Requests before those that count, the first of all among them.
        concurrency: Threads that send requests, each the next one when it has its results.
        intra_threads: Threads of a run; 0 for the engine's own choice.
        inter_threads: Branches at once, with `parallel`.
        parallel: Whether independent branches may run at once.
        level: Of optimisation: 0, 1, 2, 3 or 99.
        free_dims: Sizes of dimensions, by name, or, of made-up inputs, as INPUT.AXIS.
        free_denotations: Sizes of dimensions by what they denote, such as `DATA_BATCH`.
        config: Entries of the session's configuration.
        run_config: Entries of each run's configuration.
        profile: How the name of a profile begins; "" for none.
        optimized_model: Where the optimised model is written; "" for nowhere.
        arena, pattern: Options of the same meaning in `SessionOptions`.
        binding: Whether inputs and outputs lie in memory of the device that is bound once.
        from_memory: Whether the model is read into memory first.
        verbose: Whether the engine logs all that it does.
        generate: Whether inputs are made up even where there are files of them.
        seed: Of inputs that are made up.
        inputs: A file .npz with arrays by input name; "" for none.
        data: The folder with folders test_data_set_N; "" for the model's own.
        tolerance: Relative error that outputs may have against those in files.
    """

    engine: str = "sardonyx"
    provider: str = "cpu"
    provider_options: dict[str, str] = field(default_factory=dict)
    seconds: float = 10.0
    times: int = 0
    warmup: int = 1
    concurrency: int = 1
    intra_threads: int = 0
    inter_threads: int = 0
    parallel: bool = False
    level: int = 99
    free_dims: dict[str, int] = field(default_factory=dict)
    free_denotations: dict[str, int] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    run_config: dict[str, str] = field(default_factory=dict)
    profile: str = ""
    optimized_model: str = ""
    arena: bool = True
    pattern: bool = True
    binding: bool = False
    from_memory: bool = False
    verbose: bool = False
    generate: bool = False
    seed: int = 0
    inputs: str = ""
    data: str = ""
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        checks: list[tuple[str, bool, str]] = [
            ("provider", self.provider in PROVIDERS, " or ".join(PROVIDERS)),
            ("seconds", 0 < self.seconds <= _MOST_SECONDS, f"more than 0, up to {_MOST_SECONDS}"),
            ("times", self.times >= 0, "0 or more"),
            ("warmup", self.warmup >= 1, "1 or more"),
            ("concurrency", 1 <= self.concurrency <= 4096, "1 to 4096"),
            ("intra_threads", 0 <= self.intra_threads <= 4096, "0 to 4096"),
            ("inter_threads", 0 <= self.inter_threads <= 4096, "0 to 4096"),
            ("level", self.level in LEVELS, ", ".join(map(str, LEVELS))),
            ("seed", self.seed >= 0, "0 or more"),
            ("tolerance", 0 <= self.tolerance < math.inf, "0 or more"),
        ]
        for name, is_right, expected in checks:
            if not is_right:
                got = repr(getattr(self, name))
                text = message(f"perf {name}", "No such value", expected=expected, got=got)
                raise InvalidArgument(text)

    @staticmethod
    def of(values: Mapping[str, Any]) -> PerfSettings:
        """Settings by name.

        Raises:
            InvalidArgument: There is no such setting, or no such value.
        """
        known = [f.name for f in dataclasses.fields(PerfSettings)]
        for name in values:
            if name not in known:
                what = f"There is no setting {name!r}"
                raise InvalidArgument(message("perf", what, do=nearest(name, known)))
        given = dict(values)
        if isinstance(given.get("provider"), str):
            given["provider"] = short_name(given["provider"], "perf provider")
        return PerfSettings(**given)

    def to_json(self) -> dict[str, Any]:
        """What `of` takes."""
        return dataclasses.asdict(self)
