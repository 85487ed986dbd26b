"""What other libraries have by DLPack, until they let it go."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from sardonyx.native.functions import library
from sardonyx.native.layout import LETTING_GO

_api = ctypes.pythonapi
_Work = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
# For a capsule that is being destroyed: nothing may refer to it again.
_dying_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_dying_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)

#: What was given to other libraries, by the address of its record, until they let it go.
LENT: dict[int, Any] = {}


@_Work  # type: ignore[untyped-decorator]  # ctypes has no types for it
def _release(address: int, held: dict[int, Any] = LENT) -> None:
    held.pop(address, None)


@_Work  # type: ignore[untyped-decorator]  # ctypes has no types for it
def _destroy(
    capsule: int,
    forms: tuple[bytes, ...] = (b"dltensor", b"dltensor_versioned"),
    is_valid: Any = _dying_is_valid,
    pointer: Any = _dying_pointer,
    held: dict[int, Any] = LENT,
) -> None:
    for name in forms:
        if is_valid(capsule, name):  # else whoever took it calls the deleter
            held.pop(pointer(capsule, name), None)


class LettingGo:
    """How others let go of capsules, and of what they took out of them.

    Both happen while errors are on their way: who refuses a capsule raises first, then drops it.

    Attributes:
        destructor, context: Of capsules.
        deleters: Of DLPack's first and second form.
        manager: The context of both.
    """

    def __init__(self) -> None:
        found = library()
        self.destructor, *self.deleters = found.letting_go
        self._records = [self._record(work) for work in (_destroy, _release)]
        self.context, self.manager = map(ctypes.addressof, self._records)
        # Others may let go when this module is gone.
        for lasting in (self, found.code, _destroy, _release):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(lasting))

    @staticmethod
    def _record(work: Any) -> Any:
        functions = {
            "lock": _api.PyGILState_Ensure, "unlock": _api.PyGILState_Release,
            "fetch": _api.PyErr_Fetch, "restore": _api.PyErr_Restore, "work": work,
        }  # fmt: skip
        record = (ctypes.c_void_p * LETTING_GO.words)()
        for name, function in functions.items():
            record[LETTING_GO[name]] = ctypes.cast(function, ctypes.c_void_p).value
        return record


@cache
def letting_go() -> LettingGo:
    """How others let go, the same for all."""
    return LettingGo()
