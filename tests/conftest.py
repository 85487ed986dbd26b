import os

# Most tests compile a few small kernels: starting a process for them takes longer than that.
os.environ.setdefault("SARDONYX_COMPILE_PROCESSES", "1")
