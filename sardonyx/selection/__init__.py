"""Groups become kernels: which kernel computes each, with which sizes, shared with which others.

What can compute a group is a table of candidates: the first without a reason against it is built.
Groups of equal structure share a kernel. Tuning may choose other blocks.

Entry point: `selector.KernelSelector`. Read first: `table.py`, `contractions.py` and `selector.py`.
"""
