"""`sardonyx knobs`: every switch, with its value, type and default."""

from __future__ import annotations

import argparse

from sardonyx.base import knobs
from sardonyx.base.errors import InvalidArgument
from sardonyx.base.texts import from_home
from sardonyx.cli.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(options: argparse.Namespace) -> int:
    """Print the table; paths in the user's folder begin at ~, as those of `doctor` do."""
    for knob in knobs.all_knobs():
        code = " (changes generated code)" if knob.changes_code else ""
        say(f"{knob.name} = {_value(knob.name)}  [default {knob.default}]{code}")
        say(f"    {knob.doc}")
    return 0


def _value(name: str) -> str:
    try:
        return from_home(str(knobs.get(name)))
    except InvalidArgument as error:
        return from_home(f"({error})")
