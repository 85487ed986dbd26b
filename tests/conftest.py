import gc
import os
import signal

# Most tests compile a few small kernels: starting a process for them takes longer than that.
os.environ.setdefault("SARDONYX_COMPILE_PROCESSES", "1")

# A shell without job control starts what runs in the background with Ctrl-C ignored, and children
# inherit that. Tests that interrupt a run then wait for what never comes.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Let the collector look at what tests make, not at 20,000 tests: that takes 0.2 s each time.

    Some tests collect; those of the CUDA provider do so twice each.
    """
    gc.collect()
    gc.freeze()
