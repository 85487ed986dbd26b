"""What a trial found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sardonyx.api.cuda_options import CUDA
from sardonyx.api.optimizers import KEY as DISABLED
from sardonyx.api.settings import Settings
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.tools.tune.statistics import interval, median, percentile

DEFAULT = Settings()
#: Options of a GPU's provider, which by default rounds factors of products to TF32.
EXACT = {"use_tf32": "0"}
#: What plans layouts, by the names that onnxruntime's optimisers of that kind have.
LAYOUTS = "NchwcTransformer;NhwcTransformer"
#: Shorter words for what differs from the defaults.
_WORDS = {
    "intra_op_num_threads": "threads", "inter_op_num_threads": "branches",
    "execution_mode": "mode", "graph_optimization_level": "level",
    "session.dynamic_block_base": "blocks", "session.disable_winograd": "no winograd",
    "session.allow_bfloat16_products": "bfloat16",
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What was measured of some settings, in turns with the defaults.

    Attributes:
        settings: Those that were tried.
        ratios: Of each pair of measurements, the cost over that of the defaults.
        seconds: How long runs took.
        items_per_second: Copies of the feeds that were run in a second.
        load_seconds: How long making the session took, compilation included.
        error_share: The largest error that lower precision made; 0 where it was not measured.
        failure: Why these settings cannot be used; "" if they can.
        latency: The percentile of `seconds` that is bounded or least.
        is_slow: Whether that is above the bound.
    """

    settings: Settings
    ratios: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    items_per_second: float = 0.0
    load_seconds: float = 0.0
    error_share: float = 0.0
    failure: str = ""
    latency: float = 0.0
    is_slow: bool = False

    @property
    def name(self) -> str:
        """What differs from the defaults, in words."""
        return name_of(self.settings)

    @property
    def ratio(self) -> float:
        """The median of all ratios; infinite if there are none."""
        return median(self.ratios) if self.ratios else float("inf")

    @property
    def bounds(self) -> tuple[float, float]:
        """What holds the true ratio with a probability of 0.9."""
        return interval(self.ratios) if self.ratios else (float("inf"), float("inf"))

    @property
    def is_less_precise(self) -> bool:
        """Whether factors of products are rounded."""
        config = self.settings.extra_session_config
        is_rounded = config.get("session.allow_bfloat16_products") == "1"
        is_on_gpu = self.settings.execution_provider == CUDA
        return is_rounded or (is_on_gpu and self.settings.provider_options != EXACT)

    @property
    def works(self) -> bool:
        """Whether the settings can be used."""
        return not self.failure

    def beats(self, other: Outcome, worth: float = 1.0) -> bool:
        """Whether it is better than another one, of the same defaults, by this factor."""
        if not self.works or not self.ratios:
            return False
        if not other.works or self.is_slow != other.is_slow:
            return not self.is_slow or not other.works
        if self.is_slow:
            return self.latency < worth * other.latency
        return self.ratio < worth * other.ratio

    def is_surely_better(self) -> bool:
        """Whether it is better than the defaults by more than noise."""
        return self.works and bool(self.ratios) and not self.is_slow and self.bounds[1] < 1

    def latencies_ms(self) -> dict[str, float]:
        """Mean and percentiles, under OLive's names."""
        if not self.seconds:
            return {}
        shares = {f"latency_p{n}": n / 100 for n in (50, 75, 90, 95, 99)}
        found = {key: percentile(self.seconds, share) for key, share in shares.items()}
        found = {"avg": sum(self.seconds) / len(self.seconds)} | found
        return {key: round(1000 * value, 5) for key, value in found.items()}

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return asdict(replace(self, settings=DEFAULT)) | {"settings": self.settings.to_json()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Outcome:
        """What `to_json` gave.

        Raises:
            InvalidArgument: It is no such thing.
        """
        try:
            given = dict(found) | {"settings": Settings.from_json(found["settings"])}
            numbers = {key: tuple(given[key]) for key in ("ratios", "seconds")}
            return cls(**(given | numbers))
        except (TypeError, KeyError) as error:
            what = f"This is no result of a trial: {error!r}"
            raise InvalidArgument(message("journal", what)) from None


def name_of(settings: Settings) -> str:
    """What differs from the defaults, in words."""
    words = []
    both: dict[str, Any] = dict(settings.session_options)
    if settings.execution_provider == CUDA:
        words.append("cuda" if settings.provider_options == EXACT else "cuda tf32")
    for key, value in (both | dict(settings.extra_session_config)).items():
        word = _WORDS.get(key, key)
        if key == "execution_mode":
            word = "parallel"
        if key == DISABLED and value == LAYOUTS:
            word, value = "layouts of the file", 1
        words.append(word if str(value) == "1" and "num_threads" not in key else f"{word}={value}")
    if settings.tuning_results:
        words.append("kernels")
    if settings.io_bind:
        words.append("binding")
    if settings.concurrency > 1:
        words.append(f"concurrency={settings.concurrency}")
    if settings.batch_size > 1:
        words.append(f"batch={settings.batch_size}")
    return " ".join(words) or "default"


@dataclass
class Report:
    """All that a search found.

    Attributes:
        outcomes: In the order of the trials, the defaults' first.
        best: What wins.
        final: The comparison that says so; None where there was none.
        notes: What was not tried, and why.
        is_interrupted: Whether it was ended by a user.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    best: Outcome = field(default_factory=lambda: Outcome(DEFAULT))
    final: Outcome | None = None
    notes: list[str] = field(default_factory=list)
    is_interrupted: bool = False
