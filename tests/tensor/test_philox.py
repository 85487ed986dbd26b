"""Philox4x32-10 against its published answers."""

import numpy as np
import pytest

from sardonyx.base import dtypes
from sardonyx.tensor.evaluate import evaluate_all
from sardonyx.tensor.language import compute
from sardonyx.tensor.philox import philox
from sardonyx.tensor.scalar import constant

#: Counter, key, result: Random123's table kat_vectors, philox4x32 10.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


def words(text):
    return tuple(constant(int(word, 16), dtypes.UINT32) for word in text.split())


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_published_answers(counter, key, expected):
    results = philox(words(counter), words(key))
    with np.errstate(all="ignore"):
        found = evaluate_all([compute((), lambda w=w: w) for w in results], {}, {})
    assert [f"{int(x):08x}" for x in found] == expected.split()
