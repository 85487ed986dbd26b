"""Exceptions: onnxruntime's names, each also the built-in that a Python user would catch.

Texts read `[where] what is wrong. Expected X, got Y. Do Z.`
"""

from __future__ import annotations

from errno import ENOENT

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


class NoSuchFile(SardonyxError, FileNotFoundError):
    """The model file, or a file that it refers to, is not there."""

    errno = ENOENT  # programs that read it from an OSError find what it is


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
