"""Kernels with loops of their own; importing this package registers them.

Each says what it reads and writes as views, and what it means as NumPy (`ops.core.references`).

Entry point: `task.Task`. Read first: `task.py`, `frame.py` and `sort_rows.py`.
"""

from sardonyx.kernel.custom import (
    compact,
    determinant,
    find_key,
    forest,
    host,
    pairwise_coupling,
    scan,
    scatter,
    select_boxes,
    sort_rows,
    sparse_rows,
    top_k,
)

__all__ = [
    "compact",
    "determinant",
    "find_key",
    "forest",
    "host",
    "pairwise_coupling",
    "scan",
    "scatter",
    "select_boxes",
    "sort_rows",
    "sparse_rows",
    "top_k",
]
