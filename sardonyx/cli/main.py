"""The `sardonyx` command: one file per subcommand."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from sardonyx.base import starting
from sardonyx.base.errors import InvalidArgument, RuntimeException, SardonyxError, message
from sardonyx.base.log import set_up
from sardonyx.cli.output import clean_streams, say
from sardonyx.cli.parser import Parser

#: Subcommand -> what it does. Its module of the same name has `add_arguments` and `run`.
COMMANDS = {
    "demo": "read a picture of text with rapidocr's models",
    "run": "run a model on random or given inputs",
    "show": "print a stage of a model's compilation",
    "compare": "run a model here and in another engine, and compare outputs",
    "convert": "write a model of another framework as ONNX, and check it",
    "perf": "measure how long a model takes, or two engines in turns",
    "explain": "print kernels, fusions, copies and memory of a model, and why",
    "doctor": "check this machine and installation; text for a bug report",
    "optimize": "write a model's graph simplified, fused or in half floats",
    "bundle": "compile a model into a file that starts at once",
    "archive": "compile models' kernels ahead of any session",
    "tools": "small changes of model files",
    "tune": "find the settings with which a model runs fastest here",
    "knobs": "list every switch",
    "operators": "list every operator",
    "view": "show a profile or a model as a web page",
    "quantize": "turn weights and activations into codes of few bits",
}


def version() -> str:
    """This version of the package."""
    from sardonyx.api.version import __version__

    return __version__


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand.

    Returns:
        The exit status: 0, 1 for what failed, 2 for bad arguments, 130 at Ctrl-C.
    """
    with clean_streams():
        try:
            return _run(arguments)
        except KeyboardInterrupt:
            say("sardonyx: interrupted", is_error=True)
            return starting.STATUS


def _run(arguments: list[str] | None) -> int:
    parser = Parser(prog="sardonyx", description="ONNX models, compiled.")
    parser.add_argument("--version", action="version", version=f"sardonyx {version()}")
    subparsers = parser.add_subparsers(dest="command", required=True)
    given = sys.argv[1:] if arguments is None else arguments
    wanted = next((a for a in given if a in COMMANDS), None)
    for name, text in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=text, description=text)
        if name == wanted:
            importlib.import_module(f"sardonyx.cli.{name}").add_arguments(subparser)
    options = parser.parse_args(given)
    try:
        if options.command not in ("knobs", "operators", "doctor"):
            set_up()
        module = importlib.import_module(f"sardonyx.cli.{options.command}")
        starting.over()
        return int(module.run(options) or 0)
    except SardonyxError as error:
        # An index outside of its axis is an invalid argument of a run, not of the command.
        if isinstance(error, InvalidArgument) and not isinstance(error, RuntimeException):
            say(f"sardonyx {_told(options)}: {error}", is_error=True)
            return 2
        say(f"sardonyx: {type(error).__name__}: {error}", is_error=True)
        return 1
    except BrokenPipeError:
        # Whoever read has enough; what is left must not be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        text = message(str(error.filename or options.command), error.strerror or str(error))
        say(f"sardonyx: {type(error).__name__}: {text}", is_error=True)
        return 1
    except MemoryError as error:
        what = "There is not enough memory" + (f" ({error})" if str(error) else "")
        say(f"sardonyx: MemoryError: {message(options.command, what)}", is_error=True)
        return 1


def _told(options: argparse.Namespace) -> str:
    """The command, and the tool where it has several."""
    return " ".join(filter(None, (options.command, getattr(options, "tool", ""))))


if __name__ == "__main__":
    sys.exit(main())
