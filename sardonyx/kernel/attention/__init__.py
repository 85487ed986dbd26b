"""Attention on processors: scores never reach memory.

Totals of a softmax are added up in float64.

Entry point: `kernel.AttentionKernel`. Read first: `kernel.py`, `packing.py` and `softmax.py`.
"""
