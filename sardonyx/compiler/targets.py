"""Targets by name: what a model can be compiled for on any machine, to be looked at."""

from __future__ import annotations

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.kernel.loops.block_sizes import Tiling
from sardonyx.targets.target import Target, named_targets

#: Architecture of a GPU -> multiprocessors of the device that has it: A100, H100.
_DEVICES = {"sm_80": 108, "sm_90": 132}
#: Names of processors.
PROCESSORS = tuple(named_targets())
#: Names of GPUs.
DEVICES = tuple(_DEVICES)
#: All names.
TARGETS = (*PROCESSORS, *DEVICES)


def target_of(name: str) -> Target:
    """The target of one of TARGETS.

    Raises:
        InvalidArgument: There is none of this name.
    """
    if name in _DEVICES:
        from sardonyx.llvm.ptx import ptx_target  # commands ask for names alone

        return ptx_target(name, Tiling(_DEVICES[name]))
    found = named_targets().get(name)
    if found is None:
        expected = f"one of {', '.join(TARGETS)}"
        raise InvalidArgument(message("--target", "No such target", expected=expected, got=name))
    return found
