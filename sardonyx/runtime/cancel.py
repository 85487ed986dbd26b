"""A flag that ends runs, which native code reads while it works."""

from __future__ import annotations

import numpy as np


class CancelFlag:
    """Ends runs that were given it: `set()` from any thread. It stays set until `clear()`.

    Attributes:
        address: Of the word that native code reads.
    """

    def __init__(self) -> None:
        self._word = np.zeros(1, np.int64)
        self.address = int(self._word.__array_interface__["data"][0])

    def set(self) -> None:
        """Ask the runs to end."""
        self._word[0] = 1

    def clear(self) -> None:
        """Let runs go on to their end again."""
        self._word[0] = 0
