"""The CUDA provider: plans run on an NVIDIA GPU, with the kernels that the CPU runs, as PTX.

Nothing of NVIDIA's is imported before a GPU is asked for. A call leaves the thread's device as it
was.

Entry point: `provider.CudaProvider`. Read first: `provider.py`, `run/executable.py` and
`driver/device.py`.
"""
