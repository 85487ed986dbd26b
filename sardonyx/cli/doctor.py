"""`sardonyx doctor`: what this machine and installation are, and whether they work."""

from __future__ import annotations

import argparse
import json

from sardonyx.cli.output import say_text
from sardonyx.tools.doctor import examine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Two switches."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="leave out the self test")


def run(options: argparse.Namespace) -> int:
    """Look and print; the exit status is 1 if something is broken."""
    found = examine(self_test=not options.quick)
    if options.json:
        say_text(json.dumps(found.to_json(), indent=1, ensure_ascii=False))
    else:
        say_text(found.text())
    return 1 if found.problems else 0
