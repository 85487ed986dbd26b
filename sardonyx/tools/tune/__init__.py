"""`sardonyx tune`: the settings with which a model runs fastest here, measured."""

from __future__ import annotations

from sardonyx.tools.tune.options import TuneOptions
from sardonyx.tools.tune.tuner import Found, tune

__all__ = ["Found", "TuneOptions", "tune"]
