"""Exceptions: onnxruntime's names, each also the built-in that a Python user would catch.

onnxruntime's own derive from `Exception` alone, and programs tell them apart from ValueError and
the like: `as_onnxruntime` takes the built-ins away, `also` gives one back at a call where
onnxruntime raises it.

Texts read `[where] what is wrong. Expected X, got Y. Do Z.`
"""

from __future__ import annotations

from errno import ENOENT
from typing import Any

from sardonyx.base.printable import printable


class SardonyxError(Exception):
    """Root of all errors that sardonyx raises on purpose. Their texts are `printable`."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(printable(a, has_lines=True) if isinstance(a, str) else a for a in args))


class Fail(SardonyxError, RuntimeError):
    """A run or a load failed for a reason that no narrower class names."""


class InvalidArgument(SardonyxError, ValueError, RuntimeError):
    """A feed, an option or an argument does not fit."""


class InvalidSparseTensor(InvalidArgument):
    """Parts of a sparse tensor do not fit each other, or it has no such part."""


class ContradictingSizes(InvalidArgument):
    """Feeds contradict what the model says of sizes, but another plan may take them."""


class UnexpectedOne(ContradictingSizes):
    """A size is 1 that a plan takes as another one: `Squeeze` without axes drops such an axis.

    Attributes:
        condition: What names the size, in plans of the same model.
    """

    def __init__(self, text: str, condition: str = "") -> None:
        super().__init__(text)
        self.condition = condition


class UndecidedBranch(ContradictingSizes):
    """A branch is taken whose plan is made once it is known that it is."""


class MissingFeed(InvalidArgument, ValueError):
    """An input of the model is not fed. onnxruntime raises ValueError."""


class UnusableFeed(InvalidArgument, RuntimeError):
    """A feed is nothing that an array can be made of. onnxruntime raises RuntimeError."""


class NoSuchFile(SardonyxError):
    """The model file, or a file that it refers to, is not there; a FileNotFoundError, too.

    An OSError is laid out in memory like no other exception, so that a class cannot cease to be
    one: which of two classes an error is of is decided when it is made.
    """

    errno = ENOENT  # programs that read it from an OSError find what it is

    def __new__(cls, *args: object) -> NoSuchFile:  # noqa: D102  # a built-in protocol
        if cls is NoSuchFile and not _Face.is_onnxruntime:
            return FileNotFoundError.__new__(_NoSuchFileInPython, *args)
        return super().__new__(cls, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        return NoSuchFile, self.args


class _NoSuchFileInPython(NoSuchFile, FileNotFoundError):  # type: ignore[misc]  # `errno`
    pass


_NoSuchFileInPython.__name__ = _NoSuchFileInPython.__qualname__ = NoSuchFile.__name__


class NoModel(SardonyxError, ValueError):
    """There is no model to run."""


class EngineError(SardonyxError, RuntimeError):
    """The engine itself is at fault: worth a bug report."""


class RuntimeException(SardonyxError, RuntimeError):
    """A kernel met data that it cannot work on, such as an index out of range."""


class IndexOutOfRange(RuntimeException, InvalidArgument, Fail, IndexError):
    """An index in the data is outside of its axis.

    onnxruntime raises InvalidArgument (Gather, GatherND, ScatterElements, ScatterND) or Fail
    (GatherElements, TopK), so callers may expect either.
    """


class DivisionByZero(RuntimeException, Fail, ZeroDivisionError):
    """An integer is divided by 0. onnxruntime raises Fail."""


class WrongType(InvalidArgument, TypeError):
    """An argument is of a type that is not taken there."""


class InvalidProtobuf(SardonyxError, ValueError):
    """The bytes are not a readable ONNX file."""


class ModelLoaded(SardonyxError, RuntimeError):
    """The session holds a model already."""


class NotImplemented(SardonyxError, NotImplementedError):
    """An operator, a version of it or a type is not supported."""


class InvalidGraph(SardonyxError, ValueError):
    """The file is readable, but the graph in it is not valid."""


class EPFail(SardonyxError, RuntimeError):
    """An execution provider failed."""


class ModelLoadCanceled(SardonyxError, RuntimeError):
    """Loading was cancelled on request."""


class ModelRequiresCompilation(SardonyxError, RuntimeError):
    """The model must be compiled first, and that was forbidden."""


class NotFound(SardonyxError, KeyError):
    """A named thing is not there."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class DeviceReset(SardonyxError, RuntimeError):
    """The device was reset while in use."""


class TimedOut(Fail, TimeoutError):
    """A run took longer than it was given."""


class ResourceError(Fail):
    """The system refuses what the work needs: files, threads, processes, room on a disk, access."""


class OutOfMemory(SardonyxError, MemoryError):
    """An allocation is over a limit, or the system refused it."""


class _Face:
    is_onnxruntime = False


#: What keeps its built-in: onnxruntime's calls raise the same one, or no program of its meets it.
_KEPT = ("MissingFeed", "NoSuchFile", "OutOfMemory", "TimedOut", "UnusableFeed", "WrongType")


def as_onnxruntime() -> None:
    """Take away the built-in bases of the classes here, in this process and for good."""
    _Face.is_onnxruntime = True
    for kind in list(globals().values()):
        if isinstance(kind, type) and issubclass(kind, SardonyxError) and kind is not SardonyxError:
            own = tuple(base for base in kind.__bases__ if issubclass(base, SardonyxError))
            if kind.__name__ not in _KEPT and own != kind.__bases__:
                kind.__bases__ = own


def also(error: SardonyxError, built_in: type[Exception]) -> None:
    """Make an error that is being raised one of a built-in class, too."""
    kind = type(error)
    if isinstance(error, built_in):
        return

    def reduced(self: SardonyxError) -> tuple[Any, ...]:
        return kind, self.args

    names = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce__": reduced}
    error.__class__ = type(kind.__name__, (kind, built_in), names)


def installing(extra: str) -> str:
    """How an optional part is installed. There is no release: that name may be somebody else's."""
    return f'In a checkout of sardonyx: pip install -e ".[{extra}]"'


def too_deep(where: str) -> InvalidGraph:
    """What a RecursionError while a model is read or compiled becomes."""
    return InvalidGraph(
        message(
            where, "It is nested too deeply for what is left of Python's stack",
            do="Load it where fewer calls are nested, raise sys.setrecursionlimit, or split the "
            "model into several",
        )
    )  # fmt: skip


def message(where: str, what: str, *, expected: str = "", got: str = "", do: str = "") -> str:
    """Compose an error text of the project's one form, in one line, `printable`."""
    text = f"[{where}] {what.rstrip('.')}."
    if expected:
        text += f" Expected {expected}" + (f", got {got}." if got else ".")
    elif got:
        text += f" Got {got}."
    if do:
        text += f" {do}" if do.endswith("?") else f" {do.rstrip('.')}."
    return printable(text)
