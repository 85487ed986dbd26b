"""The CUDA provider: plans run on an NVIDIA GPU, with the kernels that the CPU runs, as PTX."""
