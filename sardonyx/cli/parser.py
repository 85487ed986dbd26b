"""How arguments of the command line are read."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from sardonyx.base.printable import printable


class Parser(argparse.ArgumentParser):
    """Bad arguments end with one line.

    Attributes:
        is_intermixed: Whether flags may stand between the other arguments.
    """

    is_intermixed = False

    def error(self, text: str) -> NoReturn:
        """Print what is wrong; the exit status is 2."""
        self.exit(2, f"{self.prog}: {printable(text)} (see {self.prog} --help)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in the class above, unless flags may stand anywhere."""
        if not self.is_intermixed:
            return super().parse_known_args(args, namespace)
        self.is_intermixed = False  # what follows calls this function, too
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self.is_intermixed = True
