"""Random bits by counting: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
1, 2, 3", 2011).

Every element of a tensor gets the four words of its own number, so that what is drawn depends
neither on the order nor on how many threads there are.
"""

from __future__ import annotations

from sardonyx.base import dtypes, integer
from sardonyx.base.dtypes import DType
from sardonyx.base.sizes import Dim
from sardonyx.tensor import scalar
from sardonyx.tensor.scalar import Scalar
from sardonyx.tensor.tensor import Tensor

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85

Words = tuple[Scalar, Scalar, Scalar, Scalar]


def draw(key: Tensor, number: Dim) -> Words:
    """The four words of an element.

    Args:
        key: uint32[4]: two words of key, and the two upper words of the counter.
        number: The element's number, which makes the two lower words.
    """
    k0, k1, c2, c3 = (scalar.load(key, (k,)) for k in range(4))
    return philox((*_words(number), c2, c3), (k0, k1))


def _words(number: Dim) -> tuple[Scalar, Scalar]:
    """The lower and upper 32 bits."""
    position = scalar.size(number)
    low = scalar.cast(position, dtypes.UINT32)
    if integer.is_nonnegative((1 << 32) - 1 - number):
        return low, scalar.constant(0, dtypes.UINT32)
    high = scalar.binary("shr", scalar.cast(position, dtypes.UINT64), 32)
    return low, scalar.cast(high, dtypes.UINT32)


def philox(counter: Words, key: tuple[Scalar, Scalar]) -> Words:
    """Philox4x32-10 of a counter."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _product(c0, _MULTIPLIERS[0])
        high1, low1 = _product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = _xor(_xor(high1, c1), k0), low1, _xor(_xor(high0, c3), k1), low0
        k0, k1 = k0 + _STEPS[0], k1 + _STEPS[1]
    return c0, c1, c2, c3


def _product(x: Scalar, factor: int) -> tuple[Scalar, Scalar]:
    """The upper and lower 32 bits of a product."""
    whole = scalar.cast(x, dtypes.UINT64) * factor
    high = scalar.cast(scalar.binary("shr", whole, 32), dtypes.UINT32)
    return high, scalar.cast(whole, dtypes.UINT32)


def _xor(a: Scalar, b: Scalar) -> Scalar:
    return scalar.binary("xor", a, b)


def unit(words: tuple[Scalar, Scalar], dtype: DType) -> Scalar:
    """A number of [0, 1): a multiple of 2^-24, or, in double, of 2^-53."""
    if dtype is not dtypes.DOUBLE:
        return _leading(words[0], 24, dtypes.FLOAT) * 2.0**-24
    upper = _leading(words[0], 27, dtypes.DOUBLE)
    return (upper * 2.0**26 + _leading(words[1], 26, dtypes.DOUBLE)) * 2.0**-53


def _leading(word: Scalar, bits: int, dtype: DType) -> Scalar:
    """The first bits of a word as a float, by way of a signed integer, which is faster."""
    shifted = scalar.binary("shr", word, 32 - bits)
    return scalar.cast(scalar.cast(shifted, dtypes.INT32), dtype)


def normal(words: Words, dtype: DType) -> Scalar:
    """A number of the standard normal distribution (Box and Muller, 1958), in float or double."""
    if dtype is dtypes.DOUBLE:
        chance = unit((words[0], words[1]), dtype) + 2.0**-53
    else:  # more bits than `unit` takes: they say how far the tails reach
        chance = (_leading(words[0], 31, dtype) + 1.0) * 2.0**-31
    turn = unit((words[2], words[3]), dtype)
    radius = scalar.unary("sqrt", scalar.unary("log", chance) * -2.0)
    return radius * scalar.unary("cos", turn * 6.283185307179586)
