"""Runs of a plan on a device: frames, launches, graphs, runs in streams of the caller.

An executable is composed of parts, which `executable.cuda_executable` puts together; all read the
frozen `DeviceState` and none changes it. A run that is like the last one of its frame is one native
call. Faults of kernels are read before results are handed out.

Entry point: `executable.CudaExecutable`. Read first: `executable.py`, `launcher.py` and
`graphs.py`.
"""
