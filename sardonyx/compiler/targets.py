"""Targets by name: what a model can be compiled for on any machine, to be looked at."""

from __future__ import annotations

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.llvm.ptx_device import NAMED_GPUS, ptx_tiling
from sardonyx.targets.target import Target, named_targets

#: Names of processors.
PROCESSORS = tuple(named_targets())
#: Names of GPUs.
DEVICES = tuple(NAMED_GPUS)
#: All names.
TARGETS = (*PROCESSORS, *DEVICES)


def target_of(name: str) -> Target:
    """The target of one of TARGETS.

    Raises:
        InvalidArgument: There is none of this name.
    """
    if name in NAMED_GPUS:
        from sardonyx.llvm.ptx import ptx_target  # commands ask for names alone

        return ptx_target(name, ptx_tiling(NAMED_GPUS[name]))
    found = named_targets().get(name)
    if found is None:
        expected = f"one of {', '.join(TARGETS)}"
        raise InvalidArgument(message("--target", "No such target", expected=expected, got=name))
    return found
