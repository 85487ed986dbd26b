"""Files of NumPy's arrays, .npz and .npy."""

from __future__ import annotations

import os
import zipfile
import zlib
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, OutOfMemory, message
from sardonyx.base.files import open_file, shown_path
from sardonyx.ir.constant import Array


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Array] | Array:
    """The arrays of a .npz file by name, or the one of a .npy file. Python objects are refused.

    Raises:
        NoSuchFile, Fail: See `files.open_file`.
        InvalidArgument: It is no regular file, or is damaged, or holds something else.
        OutOfMemory: There is not enough memory for them.
    """
    name = shown_path(path)
    with open_file(path) as file:
        try:
            held: Any = np.load(file)
            if isinstance(held, np.lib.npyio.NpzFile):
                with held:
                    held = dict(held)
        except MemoryError as error:
            what = f"There is no memory for its arrays: {error}"
            raise OutOfMemory(message(name, what)) from None
        # Each of these came of damaged files.
        except (
            ValueError, TypeError, KeyError, EOFError, OSError, SyntaxError, OverflowError,
            NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error,
        ) as error:  # fmt: skip
            what = f"It is no .npz file of arrays, nor .npy: {type(error).__name__}: {error}"
            raise InvalidArgument(message(name, what)) from None
    parts = held.values() if isinstance(held, dict) else [held]
    if not all(isinstance(part, np.ndarray) for part in parts):
        what = "It holds something else than arrays"
        raise InvalidArgument(message(name, what))
    found: dict[str, Array] | Array = held
    return found
