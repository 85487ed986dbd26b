"""cuBLASLt and cuDNN in place of kernels: which work they take, and whether it is right and faster.

No result of a library is used before it was compared; the kernel stays for what a library cannot
do.

Entry point: `libraries.Libraries`. Read first: `libraries.py`, `proving.py` and `cublaslt.py`.
"""
