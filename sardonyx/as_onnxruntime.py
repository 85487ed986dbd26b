"""`python -m sardonyx.as_onnxruntime SCRIPT|-m MODULE ...`: a program with sardonyx in place.

Processes that the program starts with multiprocessing's `spawn` have sardonyx in place, too.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
from collections.abc import Callable
from multiprocessing import spawn

from sardonyx import install_as_onnxruntime

_USAGE = "usage: python -m sardonyx.as_onnxruntime SCRIPT|-m MODULE [ARGUMENT ...]"
_FIRST = "from sardonyx import install_as_onnxruntime; install_as_onnxruntime(); "


def main() -> None:
    """Run the program that the command line names."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["-h"], ["--help"]):
        sys.stdout.write(f"{_USAGE}\n")
        return
    if not arguments or (arguments[0] == "-m" and len(arguments) < 2):
        sys.stderr.write(f"{_USAGE}\n")
        sys.exit(2)
    if arguments[0] != "-m" and not os.path.exists(arguments[0]):
        sys.exit(f"sardonyx: there is no file {arguments[0]!r}")
    install_as_onnxruntime()
    spawn.get_command_line = _with_sardonyx_first(spawn.get_command_line)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        if os.path.isfile(arguments[0]):  # of a folder or archive, runpy itself takes care
            sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        # As Python has it, `__file__` is absolute: programs change their folder.
        runpy.run_path(os.path.abspath(arguments[0]), run_name="__main__")


def _with_sardonyx_first(command_line: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """The command line of a spawned process, changed: it imports the program's main module."""

    @functools.wraps(command_line)
    def changed(**given: object) -> list[str]:
        command = command_line(**given)
        if "-c" in command:
            place = command.index("-c") + 1
            command[place] = _FIRST + command[place]
        return command

    return changed


if __name__ == "__main__":
    main()
