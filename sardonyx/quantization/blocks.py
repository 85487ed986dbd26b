"""Weights of few bits, in blocks that have scales of their own: MatMulNBits.

The left factor stays a float. With a middle code m (8 for 4 bits):

symmetric:   scale = number of largest size / -m, code = round(w / scale) + m
asymmetric:  scale = (highest - lowest) / (2 m - 1), zero point = round(-lowest / scale)
"""

from __future__ import annotations

import numpy as np

from sardonyx.quantization.arithmetic import Array


def blocks_of(
    matrix: Array, bits: int, block: int, *, symmetric: bool
) -> tuple[Array, Array, Array | None]:
    """Codes of a matrix in blocks along its rows.

    Args:
        matrix: (rows, columns).
        bits: 2, 4 or 8.
        block: Rows in a block.
        symmetric: Whether zero is the middle code.

    Returns:
        Codes as uint8, (columns, blocks, block), the last block filled up with the code of zero;
        scales, (columns, blocks), of the matrix's type, or float32 for bfloat16; zero points as
        uint8, (columns, blocks), or None.
    """
    rows, columns = matrix.shape
    count = -(-rows // block)
    kind = matrix.dtype if matrix.dtype in (np.float32, np.float16) else np.dtype(np.float32)
    padded = np.zeros((columns, count * block), np.float32)
    padded[:, :rows] = matrix.T
    numbers = padded.reshape(columns, count, block)
    middle, highest = 1 << (bits - 1), (1 << bits) - 1
    low, high = numbers.min(2), numbers.max(2)
    if symmetric:
        peak = np.where(np.abs(high) > np.abs(low), high, low)
        scale = (peak / np.float32(-middle)).astype(np.float32)
        zero = np.full(scale.shape, middle, np.float32)
    else:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        scale = ((high - low) / np.float32(highest)).astype(np.float32)
        inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
        zero = np.clip(np.round(-low * inverse), 0, highest)
        zero = np.where(scale == 0, middle, zero)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    codes = np.clip(np.round(numbers * inverse[..., None] + zero[..., None]), 0, highest)
    return (
        codes.astype(np.uint8),
        scale.astype(kind),
        None if symmetric else zero.astype(np.uint8),
    )


def pack(codes: Array, bits: int) -> Array:
    """Codes along the last axis in bytes, the first in the lowest bits."""
    each = 8 // bits
    missing = -codes.shape[-1] % each
    if missing:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], missing), np.uint8)], -1)
    parts = codes.reshape(*codes.shape[:-1], -1, each).astype(np.uint8)
    shifts = np.arange(each, dtype=np.uint8) * bits
    found: Array = np.bitwise_or.reduce(parts << shifts, axis=-1).astype(np.uint8)
    return found
