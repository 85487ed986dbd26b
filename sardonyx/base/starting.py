"""When the package was imported, and Ctrl-C while its command starts.

Ctrl-C gives one line and status 130 then, as afterwards. Importing the package takes most of that
time, before any function of the command is called: a KeyboardInterrupt would be a traceback there,
or an ImportError of what was imported by half.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

#: When the first module of the package was imported, by the system's clock.
IMPORTED_NS = time.time_ns()
#: The exit status of what Ctrl-C ended.
STATUS = 130


def _is_command() -> bool:
    """Whether this process is the command: the script that is installed, or `-m sardonyx`."""
    if sys.argv[:1] == ["-m"]:  # until Python has found the module
        words = sys.orig_argv
        return "-msardonyx" in words or ("-m", "sardonyx") in zip(words, words[1:], strict=False)
    return bool(sys.argv) and os.path.basename(sys.argv[0]) in ("sardonyx", "sardonyx.exe")


def _end(number: int, frame: Any) -> None:
    os.write(2, b"sardonyx: interrupted\n")
    os._exit(STATUS)  # nothing is begun that would have to be ended


def begin() -> None:
    """Let Ctrl-C end the process at once, if it is the command; a program's own handler stays."""
    if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def over() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


begin()
