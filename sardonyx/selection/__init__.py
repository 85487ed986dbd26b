"""Groups become kernels: which kernel computes each, with which sizes, shared with which others.

Groups of equal structure share a kernel. A cost decides between kernels; tuning may choose
otherwise.

Entry point: `selector.KernelSelector`. Read first: `selector.py`, `matmul.py` and `invocation.py`.
"""
