"""How a conversion to a float of few bits rounds, and what it does out of range."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Rounding:
    """What a cast to a float of 8 bits or fewer does beyond the nearest, ties to even.

    Attributes:
        saturate: Out of range becomes the largest number, else infinity or NaN. The types without
            either saturate always.
        direction: Of float8e8m0 alone: `up`, `down`, or `nearest` with ties up.
    """

    saturate: bool = True
    direction: str = "nearest"

    def __repr__(self) -> str:
        return f"{'' if self.saturate else 'un'}saturated {self.direction}"


NEAREST = Rounding()
UNSATURATED = Rounding(saturate=False)

#: What float8e8m0 begins and ends with, as exponents of 2.
_LOWEST, _HIGHEST = -127, 127


def round_power(x: np.ndarray[Any, Any], rounding: Rounding) -> np.ndarray[Any, Any]:
    """The codes of float8e8m0 for doubles, in uint8; the sign is not looked at.

    Source: the table in the text of ONNX's Cast-24.
    """
    size = np.abs(np.asarray(x, np.float64))
    fraction, exponent = np.frexp(size)  # size = fraction * 2**exponent, fraction in [0.5, 1)
    power = exponent.astype(np.int64) - 1
    if rounding.direction == "up":
        power += fraction > 0.5
    elif rounding.direction == "nearest":
        power += fraction >= 0.75
    power = np.where(size == 0, _LOWEST, np.where(np.isinf(size), _HIGHEST, power))
    code = np.clip(power, _LOWEST, _HIGHEST) + 127
    if not rounding.saturate:
        outside = (size < 2.0**_LOWEST) | (size > 2.0**_HIGHEST)
        code = np.where(outside, 255, code)
    return np.where(np.isnan(size), 255, code).astype(np.uint8)
