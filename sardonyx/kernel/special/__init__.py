"""Kernels with loops of their own; importing this package registers them."""

from sardonyx.kernel.special import scan, scatter, top_k

__all__ = ["scan", "scatter", "top_k"]
