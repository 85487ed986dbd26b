"""Strings, sequences and the like in a run: codes in the plan's memory, objects in a table."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.conversion import as_rounded, rounded
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import (
    EngineError,
    InvalidArgument,
    OutOfMemory,
    RuntimeException,
    SardonyxError,
    message,
)
from sardonyx.base.handlers import pass_on
from sardonyx.base.interrupt import Interrupted, claim, counting
from sardonyx.base.object_types import ObjectType
from sardonyx.host.functions import find
from sardonyx.host.items import Items
from sardonyx.host.sparse_tensor import SparseTensor
from sardonyx.native.layout import WORD
from sardonyx.plan.plan import (
    TAKE,
    Command,
    HostResult,
    HostSignature,
    InputSpec,
    OutputSpec,
    Plan,
)
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.host_arrays import array_at, text_of, texts_of_bytes
from sardonyx.runtime.storage import Array

#: A held value's number is that of its command times this, and which result it is.
_MOST_RESULTS = 64
#: About what a string of a feed takes beside its characters, as code and as object.
_ELEMENT_BYTES = 24
#: About what a new object takes, without the tensors in it.
_OBJECT_BYTES = 200


class HostPlan:
    """What all runs of a plan share: its strings, and the functions that it calls.

    Attributes:
        strings: Strings whose codes are their places; "" first.
        codes: The reverse.
    """

    def __init__(self, plan: Plan) -> None:
        self.strings = plan.strings
        self.codes = {text: code for code, text in enumerate(plan.strings)}
        self._functions: dict[int, Callable[..., Any]] = {}

    def function(self, number: int, signature: HostSignature) -> Callable[..., Any]:
        """What the command `number` calls with values."""
        found = self._functions.get(number)
        if found is None:
            found = find(signature.function)(**dict(signature.facts))
            self._functions[number] = found
        return found


class Strings:
    """Codes of strings: equal strings have equal codes.

    Args:
        known: Strings whose codes are their places; "" first.
        first: The reverse.
    """

    def __init__(self, known: Sequence[str] = ("",), first: dict[str, int] | None = None) -> None:
        self._known = known
        self._first = {"": 0} if first is None else first
        self._new: dict[str, int] = {}
        #: Memory of the strings that are not known from the start.
        self.new_bytes = 0
        self._texts: list[str] = []

    @property
    def all(self) -> tuple[str, ...]:
        """Every string, in the order of codes."""
        return (*self._known, *self._texts)

    def code(self, text: str) -> int:
        """The code of a string."""
        code = self._first.get(text)
        if code is None:
            code = self._new.get(text)
        if code is None:
            code = self._new[text] = len(self._known) + len(self._texts)
            self._texts.append(text)
            self.new_bytes += sys.getsizeof(text)
        return code

    def text(self, code: int) -> str:
        """The string with a code."""
        split = len(self._known)
        if not 0 <= code < split + len(self._texts):
            raise EngineError(message("run", f"There is no string {code}"))
        return self._known[code] if code < split else self._texts[code - split]

    def encode(self, texts: Array, where: str) -> Array:
        """Codes for an array of strings.

        Raises:
            InvalidArgument: An element is no string.
        """
        codes = np.empty(texts.shape, np.int64)
        codes.reshape(-1)[:] = [self.code(_as_text(t, where)) for t in texts.reshape(-1).tolist()]
        return codes

    def decode(self, codes: Array) -> Array:
        """The strings of an array of codes."""
        texts = np.empty(codes.shape, object)
        flat = texts.reshape(-1)
        for k, code in enumerate(codes.reshape(-1).tolist()):
            flat[k] = self.text(code)
        return texts


def _as_text(value: object, where: str) -> str:
    if isinstance(value, str):
        # Text of a class of its own may compare as it likes.
        return value if type(value) is str else str.__str__(value)
    if isinstance(value, bytes):
        return text_of(value)
    what = "An element is no string"
    raise InvalidArgument(message(where, what, expected="str", got=type(value).__name__))


def _written_out(value: object, where: str) -> str:
    """An element of a feed as text: `str()` of what is none, as onnxruntime takes it."""
    if type(value) is str:
        return value
    try:
        text = str.__str__(str(value))
    except (SardonyxError, MemoryError):
        raise
    except Exception as error:  # `__str__` of any class
        what = f"str() of an element, a {type(value).__name__}, fails: {error}"
        raise InvalidArgument(message(where, what)) from error
    claim(sys.getsizeof(text))
    return text


class HostTable:
    """The objects of one run, and the calls that make them.

    Args:
        plan: What all runs share.
        budget: What the objects count in for as long as the table lives.
    """

    def __init__(self, plan: HostPlan, budget: Budget) -> None:
        self._budget, self._taken_bytes = budget, 0
        self.plan = plan
        self.strings = Strings(plan.strings, plan.codes)
        self._objects: list[Any] = [None]
        self._held: dict[int, Any] = {}

    def __del__(self) -> None:
        self._budget.give(self._taken_bytes)

    def _claim(self, size_bytes: int) -> None:
        self._budget.take(size_bytes, "strings, sequences and maps")

    def _count(self, size_bytes: int) -> None:
        self._claim(size_bytes)
        self._taken_bytes += size_bytes

    # -- feeds and results ----------------------------------------------------------------------

    def encode(self, specs: Iterable[InputSpec], feeds: Sequence[object]) -> tuple[object, ...]:
        """Feeds with codes in place of objects.

        Raises:
            InvalidArgument: A feed is not of its type.
        """
        coded = list(feeds)
        for k, (feed, spec) in enumerate(zip(feeds, specs, strict=False)):
            if spec.dtype.is_code:
                coded[k] = self._encode(feed, spec)
        return tuple(coded)

    def _encode(self, feed: object, spec: InputSpec) -> Array:
        where = f"input {spec.name}"
        # What is fed stays for the run: nothing that is taken is given back before.
        with counting(self._count, lambda _: None):
            if spec.dtype is dtypes.STRING:
                return self.strings.encode(_string_array(feed, where), where)
            assert isinstance(spec.dtype, ObjectType)  # noqa: S101 - the other dtype with codes
            return np.array(self._add(_fed(feed, spec.dtype, where)), np.int64)

    def decode(self, specs: Iterable[OutputSpec], results: list[Any]) -> list[Any]:
        """Results with objects in place of codes."""
        found: list[Any] = []
        for spec, result in zip(specs, results, strict=True):
            if spec.dtype is dtypes.STRING:
                result = self.strings.decode(result)
            elif spec.dtype.is_code:
                result = given_out(self._object(int(result)))
            found.append(result)
        return found

    def _add(self, value: Any) -> int:
        self._objects.append(value)
        return len(self._objects) - 1

    def _object(self, code: int) -> Any:
        if not 0 <= code < len(self._objects):
            raise EngineError(message("run", f"There is no object {code}"))
        return self._objects[code]

    # -- calls ----------------------------------------------------------------------------------

    def call(self, number: int, command: Command, words: Sequence[int]) -> None:
        """Do the command `number`, whose arguments are `words`.

        Raises:
            RuntimeException: The function cannot work on the data, or gives what does not fit.
        """
        signature = command.host
        assert signature is not None  # noqa: S101 - the caller looked
        rest = list(words)
        given = [None if x is None else self._load(*x, rest) for x in signature.operands]
        try:
            if signature.function == TAKE:
                results: tuple[Any, ...] = (self._held[int(np.asarray(given[0]))],)
            else:
                with counting(self._claim, self._budget.give):
                    found = self.plan.function(number, signature)(*given)
                results = found if isinstance(found, tuple) else (found,)
            texts_before = self.strings.new_bytes
            for which, (result, value) in enumerate(zip(signature.results, results, strict=True)):
                if result is not None:
                    if isinstance(result.dtype, ObjectType):
                        self._count(_new_bytes(value, given))
                    key = number * _MOST_RESULTS + which
                    self._store(value, result, key, array_at(_memory(result), rest))
            self._count(self.strings.new_bytes - texts_before)
        except (OutOfMemory, Interrupted):
            raise
        except SardonyxError as error:
            kind = type(error) if isinstance(error, RuntimeException) else RuntimeException
            raise kind(f"[{command.where}] {error}") from error
        except Exception as error:  # data from outside decides what libraries raise
            pass_on(error)
            if isinstance(error, MemoryError):
                what = f"There is no memory: {error}"
                raise OutOfMemory(message(command.where, what)) from None
            text = f"The data cannot be worked on: {error}"
            raise RuntimeException(message(command.where, text)) from error

    def _load(self, dtype: DType, rank: int, words: list[int]) -> Any:
        array = array_at((dtype.stored, rank), words)
        if dtype is dtypes.STRING:
            return self.strings.decode(array)
        return self._object(int(array)) if dtype.is_code else array

    def _store(self, value: Any, result: HostResult, key: int, place: Array) -> None:
        if result.held:
            array = self._checked(value, result)
            self._count(array.nbytes - (self._held[key].nbytes if key in self._held else 0))
            self._held[key] = array
            place[0] = key
            place[1:] = array.shape
        elif isinstance(result.dtype, ObjectType):
            place[...] = self._add(value)
        else:
            array = self._checked(value, result)
            if array.shape != place.shape:
                raise _misfit("shape", place.shape, array.shape)
            is_string = result.dtype is dtypes.STRING
            place[...] = self.strings.encode(array, "result") if is_string else array

    def _checked(self, value: Any, result: HostResult) -> Array:
        dtype = result.dtype.numpy
        array = as_rounded(value, dtype) if not isinstance(value, np.ndarray) else value
        if array.dtype != dtype:
            raise _misfit("element type", dtype, array.dtype)
        if array.ndim != result.rank:
            raise _misfit("number of axes", result.rank, array.ndim)
        return array


def _new_bytes(value: Any, given: Sequence[Any]) -> int:
    """About what an object takes beside those that it was made of: tensors are copied into it."""
    size_bytes = _OBJECT_BYTES + sum(x.nbytes for x in given if isinstance(x, np.ndarray))
    if isinstance(value, Items) and not any(value.shares_with(x) for x in given):
        size_bytes += WORD * len(value)
    return size_bytes


def _misfit(what: str, expected: object, got: object) -> RuntimeException:
    text = f"A value has another {what} than the model says"
    return RuntimeException(message("host", text, expected=str(expected), got=str(got)))


def _memory(result: HostResult) -> tuple[np.dtype[Any], int]:
    return (np.dtype(np.int64) if result.held else result.dtype.stored), result.memory_rank


def _string_array(feed: object, where: str) -> Array:
    """A feed as an array of str.

    Bytes of a type of NumPy's are text in UTF-8. Elements of an array of objects, or of a list, are
    `str()` of what they are.

    Raises:
        InvalidArgument: It is an array of another type, or `str()` of an element fails.
    """
    array = np.asarray(feed) if isinstance(feed, np.ndarray) else np.asarray(feed, object)
    claim(_ELEMENT_BYTES * array.size)  # an array of few bytes can repeat them without end
    kind = array.dtype.kind
    if kind == "S" or (kind == "V" and array.dtype.fields is None):
        return texts_of_bytes(array)
    if kind not in "OTU" and array.size:
        what = "The feed has the wrong element type"
        raise InvalidArgument(message(where, what, expected="string", got=str(array.dtype)))
    texts = [_written_out(item, where) for item in array.reshape(-1).astype(object)]
    return np.array([*texts, None], object)[:-1].reshape(array.shape)


def _fed(value: Any, type_: DType, where: str) -> Any:
    """A feed as the host keeps it.

    Raises:
        InvalidArgument: It is not of that type.
    """
    if not isinstance(type_, ObjectType):
        return _fed_array(value, type_, where)
    if type_.form == "optional":
        return None if value is None else _fed(value, type_.element, where)
    if type_.form == "map":
        if not isinstance(value, Mapping):
            raise _wrong(where, type_, value)
        return _fed_map(value, type_, where)
    if type_.form == "sparse":
        if not isinstance(value, SparseTensor) or value.data_type() != type_.type_text:
            raise _wrong(where, type_, value)
        return value
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise _wrong(where, type_, value)
    return Items([_fed(item, type_.element, where) for item in value])


def _fed_map(value: Mapping[Any, Any], type_: ObjectType, where: str) -> dict[Any, Any]:
    texts, keys_are_texts = type_.element is dtypes.STRING, type_.key is dtypes.STRING
    found: dict[Any, Any] = {}
    for key, item in value.items():
        if isinstance(key, (str, bytes)) is not keys_are_texts:
            kind = "std::string" if keys_are_texts else "int64_t"
            what = f"Unexpected key type  {type(key)}, it cannot be linked to C type {kind}"
            raise InvalidArgument(message(where, what, expected=type_.type_text))
        if isinstance(type_.element, ObjectType):
            held = _fed(item, type_.element, where)
        elif isinstance(item, (str, bytes)) is not texts:
            raise _wrong(where, type_, item)
        else:
            held = _as_text(item, where) if texts else _number(item, type_.element, type_, where)
        whole = _as_text(key, where) if keys_are_texts else _number(key, dtypes.INT64, type_, where)
        found[whole] = held
    return found


def _number(value: Any, dtype: DType, whole: ObjectType, where: str) -> Any:
    """One number of a map, as a Python number that is one of the type."""
    try:
        plain = operator.index(value) if dtype.is_integer else value
        return as_rounded(plain, dtype.numpy).reshape(()).item()
    except (ValueError, TypeError, OverflowError):
        raise _wrong(where, whole, value) from None


def _fed_array(value: Any, dtype: DType, where: str) -> Array:
    if dtype is dtypes.STRING:
        return _string_array(value, where)
    try:
        array = np.asarray(value)
        claim(array.size * dtype.numpy.itemsize)
        if not isinstance(value, np.ndarray):
            array = rounded(array, dtype.numpy)
    except (ValueError, TypeError, OverflowError) as error:
        what = f"An item, a {type(value).__name__}, is no array: {error}"
        raise InvalidArgument(message(where, what)) from None
    if array.dtype != dtype.numpy:
        what = "An item has the wrong element type"
        raise InvalidArgument(message(where, what, expected=str(dtype.numpy), got=str(array.dtype)))
    return array.copy()


def _wrong(where: str, type_: DType, value: object) -> InvalidArgument:
    what = "The feed has the wrong type"
    got = value.data_type() if isinstance(value, SparseTensor) else type(value).__name__
    return InvalidArgument(message(where, what, expected=type_.type_text, got=got))


def given_out(value: Any) -> Any:
    """An object as callers get it."""
    if not isinstance(value, Items):
        return value
    return [given_out(item) if isinstance(item, Items) else item for item in value]
