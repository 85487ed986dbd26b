"""Kernels with loops of their own; importing this package registers them."""

<<<<<<< HEAD
from sardonyx.kernel.special import compact, host, scan, scatter, select_boxes, sort_rows, top_k

__all__ = ["compact", "host", "scan", "scatter", "select_boxes", "sort_rows", "top_k"]
=======
from sardonyx.kernel.special import (
    compact,
    couple,
    find_key,
    forest,
    host,
    scan,
    scatter,
    select_boxes,
    top_k,
)

__all__ = [
    "compact",
    "couple",
    "find_key",
    "forest",
    "host",
    "scan",
    "scatter",
    "select_boxes",
    "top_k",
]
>>>>>>> 08b29b9 (Operators of ai.onnx.ml: features, encoders, linear and support vector machines, trees)
