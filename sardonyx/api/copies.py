"""`copy_tensors`: several values to the memory of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.api.ortvalue import OrtValue
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import InvalidArgument, WrongType, message
from sardonyx.runtime.storage import DeviceArray, Tensor, write


@names_misfits
def copy_tensors(
    source: Sequence[OrtValue], target: Sequence[OrtValue], stream: Any = None
) -> None:
    """Copy each value of `source` to the memory of the one of `target`, wherever they lie.

    Nothing is copied if one of the pairs, or the stream, does not fit.

    Args:
        source: Values.
        target: As many.
        stream: A stream of the device: then nobody waits for copies to the device, and from it to
            pinned memory (`CudaPinned`). Runs that use targets on the device come after the copies;
            pinned memory is complete when the stream has come so far. The caller waits for copies
            from the device to other memory of the host, and between arrays of the host. Without a
            stream the copies have happened at the return.

    Raises:
        InvalidArgument: A pair does not fit, or there is no such stream, or it is another
            device's than a pair's target, or its source if the target is the host's. Pairs count
            from 0.
    """
    if len(source) != len(target):
        raise InvalidArgument(
            message(
                "copy_tensors", "There must be a target for each source",
                expected=str(len(source)), got=str(len(target)),
            )
        )  # fmt: skip
    if stream is not None:
        from sardonyx.cuda.driver.stream import handle_of

        stream = handle_of(stream)
    pairs = []
    for number, (given, held) in enumerate(zip(source, target, strict=True)):
        where = f"copy_tensors pair {number}"
        for name, value in (("source", given), ("target", held)):
            if not isinstance(value, OrtValue):
                raise WrongType(
                    message(
                        where, f"The {name} is no OrtValue", expected="OrtValue",
                        got=type(value).__name__,
                        do="OrtValue.ortvalue_from_numpy makes one on an array's memory",
                    )
                )  # fmt: skip
        pairs.append((held._tensor(), held._contents(where, given)))
    if stream is not None:
        _check_stream(stream, pairs)
    for to, contents in pairs:
        write(to, contents, stream)


def _check_stream(stream: int, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Refuse a stream that works on another device than one that copies."""
    from sardonyx.cuda.driver.device import device

    for to, contents in pairs:
        copies = to if isinstance(to, DeviceArray) else contents
        if isinstance(copies, DeviceArray):
            device(copies.kind.number).callers_stream(stream)
