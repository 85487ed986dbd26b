"""Kernels with loops of their own; importing this package registers them."""

from sardonyx.kernel.special import compact, host, scan, scatter, select_boxes, sort_rows, top_k

__all__ = ["compact", "host", "scan", "scatter", "select_boxes", "sort_rows", "top_k"]
