"""What callers feed becomes arrays that the engine takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.spelling import nearest
from sardonyx.base.conversion import as_rounded
from sardonyx.base.dtypes import STRING
from sardonyx.base.errors import (
    InvalidArgument,
    MissingFeed,
    SardonyxError,
    UnusableFeed,
    WrongType,
    message,
)
from sardonyx.base.handlers import pass_on
from sardonyx.base.object_types import ObjectType
from sardonyx.runtime.declared import ValueInfo
from sardonyx.runtime.overlaps import check_apart
from sardonyx.runtime.storage import DeviceArray


def check_mapping(given: Any) -> None:
    """Refuse feeds that are not by name.

    Raises:
        InvalidArgument: They are not.
    """
    if not isinstance(given, Mapping):
        raise WrongType(
            message(
                "run", "The feeds are no dict", expected="{name: array}", got=type(given).__name__
            )
        )


#: Of so many missing feeds the types and sizes are said.
_MOST_SHOWN = 4


def in_order(
    inputs: tuple[ValueInfo, ...],
    given: Mapping[str, Any],
    overridable: tuple[ValueInfo, ...] = (),
) -> list[Any]:
    """The feeds in the order of `inputs`, each an array.

    Raises:
        InvalidArgument: One is missing, is not an input, or cannot be made an array.
    """
    check_complete(inputs, given)
    known = {v.name for v in (*inputs, *overridable)}
    for name in given:
        if name not in known:
            raise InvalidArgument(
                message("run", f"The model has no input {name!r}", do=nearest(name, known))
            )
    return [as_array(given.get(v.name), v) for v in inputs]


def check_complete(inputs: tuple[ValueInfo, ...], given: Mapping[str, Any]) -> None:
    """Refuse feeds without one for each input.

    Raises:
        MissingFeed: One is missing.
    """
    missing = {v.name: v for v in inputs if v.name not in given and not _is_optional(v)}
    if missing:
        what = f"Required inputs ({list(missing)}) are missing from input feed ({list(given)})"
        strange = [name for name in given if name not in {v.name for v in inputs}]
        near = nearest(strange[0], missing) if strange else ""
        shown = [f"{name} ({v.form})" for name, v in missing.items()][:_MOST_SHOWN]
        rest = f" and {len(missing) - len(shown)} more" if len(missing) > len(shown) else ""
        do = near if near.endswith("?") else f"Feed {', '.join(shown)}{rest}"
        raise MissingFeed(message("run", what, do=do))


def _is_optional(info: ValueInfo) -> bool:
    return isinstance(info.dtype, ObjectType) and info.dtype.form == "optional"


def plain(names: tuple[str, ...], feeds: Mapping[str, Any]) -> list[Any] | None:
    """The feeds in order, if they are arrays, or values with one, for exactly these inputs."""
    if type(feeds) is not dict or len(feeds) != len(names):
        return None
    given = [feeds.get(name) for name in names]
    for place, value in enumerate(given):
        if type(value) is OrtValue:
            value = given[place] = value._array
        if type(value) is not np.ndarray and not isinstance(value, DeviceArray):
            return None
    return given


def as_array(value: Any, info: ValueInfo) -> Any:
    """One feed as an array, wherever it lies; numbers in lists take the input's type.

    Sequences, maps and optionals stay what they are.
    """
    if isinstance(info.dtype, ObjectType):
        return value.to_python() if isinstance(value, OrtValue) else value
    if isinstance(value, (np.ndarray, DeviceArray)):
        return value
    if isinstance(value, OrtValue):
        return value._tensor()
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, (list, tuple, int, float, bool, str, bytes)):
        if info.dtype is STRING and not isinstance(value, (list, tuple, str)):
            # A number is not what strings are meant to be; an array of bytes is text in UTF-8.
            return np.asarray(np.void(value) if isinstance(value, bytes) and value else value)
        try:
            return as_rounded(value, info.dtype.numpy)
        except (ValueError, TypeError, OverflowError) as error:
            raise UnusableFeed(
                message(f"input {info.name}", f"The feed is no array: {error}")
            ) from None
    try:
        if hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__"):
            return OrtValue.from_dlpack(value)._tensor()
        if hasattr(value, "__array__"):
            return np.asarray(value)
    except SardonyxError:
        raise
    except Exception as error:  # what an object of another library raises
        pass_on(error)
        kind = type(value).__name__
        what = f"The feed, a {kind}, gives no array: {type(error).__name__}: {error}"
        raise UnusableFeed(message(f"input {info.name}", what)) from error
    raise UnusableFeed(
        message(
            f"input {info.name}", "The feed is no array",
            expected=info.dtype.type_text, got=type(value).__name__,
        )
    )  # fmt: skip


def converter(feeds: Iterable[Any]) -> Callable[[OrtValue], Any] | None:
    """How outputs become what is fed: the first feed that is another library's array decides.

    None where all are NumPy's, or plain numbers.
    """
    for feed in feeds:
        if isinstance(feed, OrtValue):
            return _same
        if isinstance(feed, np.ndarray) or not hasattr(feed, "__dlpack__"):
            continue
        # The array standard's way, then that of torch, which has no such name.
        space = getattr(feed, "__array_namespace__", None)
        library = space() if space is not None else sys.modules.get(_library(feed))
        found: Callable[[OrtValue], Any] | None = getattr(library, "from_dlpack", None)
        if found is not None:
            return _to_torch if _library(feed) == "torch" else found
    return None


def like_feeds(convert: Callable[[OrtValue], Any], result: Any) -> Any:
    """A result as `converter` says; what is no tensor has a form in no other library."""
    value = result if isinstance(result, OrtValue) else OrtValue(result)
    return convert(value) if convert is _same or value.is_tensor() else result


def stream_of(feeds: Iterable[Any], number: int, *, follows: bool) -> Any:
    """The stream in which a run with arrays of another library is to be; None for any.

    That is torch's current one, so that neither has to wait for the other, and cupy's if it is
    being captured.

    Args:
        feeds: What is fed.
        number: Of the device.
        follows: Whether runs are to be in torch's stream if it is not being captured, too.
    """
    for library, feed in {_library(feed): feed for feed in feeds}.items():
        cuda = getattr(sys.modules.get(library), "cuda", None)
        if library == "torch" and cuda is not None:
            if cuda.is_current_stream_capturing():
                return cuda.current_stream()
            if follows and getattr(feed, "is_cuda", False):
                from sardonyx.cuda.interop.torch_tensors import current_stream

                return current_stream(number)
        if library == "cupy" and cuda is not None:
            stream = cuda.get_current_stream()
            if stream.is_capturing():
                return stream
    return None


def _same(value: OrtValue) -> OrtValue:
    return value


def _to_torch(value: OrtValue) -> Any:
    held = value._array
    if isinstance(held, DeviceArray):
        from sardonyx.cuda.interop.torch_tensors import tensor_on

        return tensor_on(held)
    return sys.modules["torch"].from_dlpack(value)


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def targets(out: Sequence[Any] | None, infos: Sequence[ValueInfo]) -> list[Any]:
    """The memory that outputs are to be written to; None for those that get new memory.

    Raises:
        InvalidArgument: There are more or fewer than outputs, one is no array of its type, or two
            overlap.
    """
    if out is None:
        return [None] * len(infos)
    if not isinstance(out, (list, tuple)) or len(out) != len(infos):
        got = f"{len(out)}" if isinstance(out, (list, tuple)) else type(out).__name__
        what = "`out` is a list with an array, or None, for each output that is returned"
        raise InvalidArgument(message("run out", what, expected=f"{len(infos)}", got=got))
    pairs = zip(out, infos, strict=True)
    found = [None if given is None else target_of(given, info) for given, info in pairs]
    check_apart(zip([info.name for info in infos], found, strict=True))
    return found


def target_of(given: Any, info: ValueInfo) -> Any:
    """The memory that an output is to be written to, of what a caller gave.

    Raises:
        InvalidArgument: It has none that others may write to.
    """
    where = f"output {info.name}"
    held = as_array(given, info) if _is_memory(given) else None
    if not isinstance(held, (np.ndarray, DeviceArray)):
        expected = "an array, an OrtValue, or what has __dlpack__ or __cuda_array_interface__"
        got = type(given).__name__
        raise InvalidArgument(message(where, "This is no memory", expected=expected, got=got))
    check_shared(where, held)
    if isinstance(held, np.ndarray) and not held.flags.writeable:
        raise InvalidArgument(message(where, "The array for the result is read-only"))
    return held


def _is_memory(value: Any) -> bool:
    """Whether what is written to the array of a value is seen in the value."""
    return isinstance(value, (np.ndarray, DeviceArray, OrtValue)) or (
        not isinstance(value, np.generic)
        and (hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__"))
    )


def check_shared(where: str, held: Any) -> None:
    """Refuse memory that cannot be shared: what is written to a copy, nobody would see.

    Raises:
        InvalidArgument: It is a copy.
    """
    if isinstance(held, DeviceArray) and held.is_copy:
        what = "Elements lie in steps on the device: such memory cannot be shared"
        raise InvalidArgument(message(where, what, do="Take a contiguous array"))


def given_back(results: list[Any], held: Sequence[Any], out: Sequence[Any] | None) -> list[Any]:
    """Results, with what the caller gave in place of its memory where all of that was written.

    Args:
        results: Of a run.
        held: The memory that they were written to, as `targets` found it.
        out: What the caller gave.
    """
    given = out or [None] * len(results)
    found = []
    for result, memory, mine in zip(results, held, given, strict=True):
        is_whole = memory is not None and tuple(np.shape(result)) == tuple(memory.shape)
        whole = mine if is_whole else result
        found.append(OrtValue(whole) if isinstance(whole, DeviceArray) else whole)
    return found
