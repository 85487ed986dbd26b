"""Kernels with loops of their own; importing this package registers them."""

from sardonyx.kernel.special import (
    compact,
    couple,
    determinant,
    find_key,
    forest,
    host,
    scan,
    scatter,
    select_boxes,
    sort_rows,
    sparse_rows,
    top_k,
)

__all__ = [
    "compact",
    "couple",
    "determinant",
    "find_key",
    "forest",
    "host",
    "scan",
    "scatter",
    "select_boxes",
    "sort_rows",
    "sparse_rows",
    "top_k",
]
