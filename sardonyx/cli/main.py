"""The `sardonyx` command: one file per subcommand."""

from __future__ import annotations

import argparse
import importlib
import sys

from sardonyx.base.errors import SardonyxError
from sardonyx.base.log import set_up

#: Subcommand -> what it does. Its module of the same name has `add_arguments` and `run`.
COMMANDS = {
    "demo": "read a picture of text with rapidocr's models",
    "run": "run a model on random or given inputs",
    "show": "print a stage of a model's compilation",
    "compare": "run a model here and in another engine, and compare outputs",
    "knobs": "list every switch",
}


def main(arguments: list[str] | None = None) -> int:
    """Run a subcommand; gives the exit status."""
    parser = argparse.ArgumentParser(prog="sardonyx", description="ONNX models, compiled.")
    subparsers = parser.add_subparsers(dest="command", required=True)
    given = sys.argv[1:] if arguments is None else arguments
    wanted = next((a for a in given if a in COMMANDS), None)
    for name, text in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=text, description=text)
        if name == wanted:
            importlib.import_module(f"sardonyx.cli.{name}").add_arguments(subparser)
    options = parser.parse_args(given)
    set_up()
    try:
        module = importlib.import_module(f"sardonyx.cli.{options.command}")
        return int(module.run(options) or 0)
    except SardonyxError as error:
        print(f"sardonyx: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    sys.exit(main())
