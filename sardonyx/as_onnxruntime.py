"""`python -m sardonyx.as_onnxruntime SCRIPT|-m MODULE ...`: a program with sardonyx in place."""

from __future__ import annotations

import runpy
import sys

from sardonyx import install_as_onnxruntime


def main() -> None:
    """Run the program that the command line names."""
    arguments = sys.argv[1:]
    if not arguments or (arguments[0] == "-m" and len(arguments) < 2):
        sys.exit("usage: python -m sardonyx.as_onnxruntime SCRIPT|-m MODULE [ARGUMENT ...]")
    install_as_onnxruntime()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main()
