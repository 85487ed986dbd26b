"""Runs of a plan on a device: frames, launches, graphs, runs in streams of the caller.

A run that is like the last one of its frame is one native call. Faults of kernels are read before
results are handed out.

Entry point: `executable.CudaExecutable`. Read first: `executable.py`, `launch.py` and
`graphs.py`.
"""
