import gc
import itertools
import os
import signal
from pathlib import Path

import pytest

from tests.tiers import TIERS, is_left_out, slow_files

# Most tests compile a few small kernels: starting a process for them takes longer than that.
os.environ.setdefault("SARDONYX_COMPILE_PROCESSES", "1")

# Tests compile what they test, whatever was compiled ahead.
os.environ["SARDONYX_KERNELS"] = "off"

# A shell without job control starts what runs in the background with Ctrl-C ignored, and children
# inherit that. Tests that interrupt a run then wait for what never comes.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_SLOW = slow_files()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--tier`: see `tests.tiers`."""
    text = (
        "those that take five minutes, the rest, or all; by default all where paths or -k are given"
    )
    parser.addoption("--tier", choices=TIERS, default=None, help=text)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of other tiers; None lets pytest decide."""
    # Who asks for tests by name gets them all, not those alone that are quick.
    named = config.getoption("file_or_dir") or config.getoption("keyword")
    tier = config.getoption("tier") or ("all" if named else "fast")
    return is_left_out(collection_path, tier, _SLOW) or None


#: After so many tests what is left of them (reports, what is compiled once) is known to stay.
_TESTS_BETWEEN_FREEZES = 100
_ended = itertools.count(1)


def pytest_collection_finish() -> None:
    """Let the collector look at what tests make, not at 20,000 tests: that takes 0.2 s each time.

    Some tests collect; those of the CUDA provider do so twice each.
    """
    _freeze()


def pytest_runtest_logfinish() -> None:
    """The same of what the tests so far have left: after 8,000 tests 0.2 s, too."""
    if next(_ended) % _TESTS_BETWEEN_FREEZES == 0:
        _freeze()


def _freeze() -> None:
    gc.collect()
    gc.freeze()
