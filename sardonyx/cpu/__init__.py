"""The processor as a provider: kernels as machine code in one blob, run by threads.

It holds no kernels of its own; `llvm` and `link` make them. An executable is composed of parts: a
frame pool, what binds feeds, a launcher, what native code stops for, and the fast path.

Entry point: `provider.CpuProvider`. Read first: `provider.py`, `executable.py` and `fast_path.py`.
"""
