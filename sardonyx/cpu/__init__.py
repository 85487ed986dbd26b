"""The processor as a provider: kernels as machine code in one blob, run by threads.

It holds no kernels of its own; `llvm` and `link` make them.

Entry point: `provider.CpuProvider`. Read first: `provider.py` and `threads.py`.
"""
