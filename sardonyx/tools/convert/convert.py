"""A model of another framework to an ONNX file, and the check that both compute the same."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.api.spelling import nearest
from sardonyx.base.errors import Fail, InvalidArgument, SardonyxError, message
from sardonyx.base.printable import printable_lines
from sardonyx.tools.convert.detect import open_source
from sardonyx.tools.convert.source import Array, ConvertSource, Wishes
from sardonyx.tools.targets import check_targets


@dataclass(frozen=True, slots=True)
class ConversionError:
    """How far one output is from the source's.

    Attributes:
        name: The output's.
        absolute: Largest difference; for what is no float, 0.
        relative: That, in parts of the source's largest number.
        differing: Share of elements that differ where they are no floats.
        problem: Why the two cannot be compared; "" if they can.
    """

    name: str
    absolute: float = 0.0
    relative: float = 0.0
    differing: float = 0.0
    problem: str = ""

    def is_within(self, tolerance: float) -> bool:
        """Whether both say the same."""
        return not self.problem and self.relative <= tolerance and self.differing <= tolerance


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """What a conversion came to.

    Attributes:
        framework: Where the model is from.
        path: The file that was written.
        outputs: The error of each.
        tolerance: Up to which error an output is right.
    """

    framework: str
    path: str
    outputs: tuple[ConversionError, ...]
    tolerance: float

    @property
    def is_right(self) -> bool:
        """Whether all outputs are the source's."""
        return bool(self.outputs) and all(o.is_within(self.tolerance) for o in self.outputs)

    def __str__(self) -> str:
        lines = [f"{self.path}: converted from {self.framework}"]
        for o in self.outputs:
            how = o.problem or (
                f"error {o.relative:.2g} of the largest number, {o.absolute:.2g} at most"
                if not o.differing
                else f"{100 * o.differing:.2g} % of the elements differ"
            )
            lines.append(f"  {'ok   ' if o.is_within(self.tolerance) else 'WRONG'} {o.name}: {how}")
        verdict = "agrees with" if self.is_right else "DIFFERS FROM"
        lines.append(f"The file {verdict} the source (tolerance {self.tolerance:g}).")
        return printable_lines(lines)


def convert(
    model: Any,
    output: str | os.PathLike[str],
    *,
    inputs: Mapping[str, Array] | None = None,
    framework: str | None = None,
    opset: int | None = None,
    free: Mapping[str, Mapping[int, str]] | None = None,
    tolerance: float = 1e-4,
    seed: int = 0,
    trust_pickle: bool = False,
) -> ConversionReport:
    """Write a model of PyTorch, TensorFlow, scikit-learn, LightGBM or XGBoost as an ONNX file.

    The framework and this engine then compute the same inputs.

    Args:
        model: See `detect.open_source`.
        output: The file to write. It is there only if both ran and were compared, also where they
            differ, so that one can look for the reason. One that was there before stays otherwise.
        inputs: What to convert and check with, in the order of the model's arguments; None for what
            the model itself says it takes.
        framework: Where the model is from; None to find out.
        opset: Version of ONNX's operators; None for what the exporter does by itself.
        free: By input, the axes that may have other sizes later, with names for them.
        tolerance: Largest error of a float, in parts of the output's largest number; and the share
            of other elements that may differ.
        seed: Of inputs that are made.
        trust_pickle: Whether a pickle may be read: that runs whatever code is in it.

    Raises:
        NoSuchFile: The model's file is not there.
        InvalidArgument: The model cannot be found, a package is missing, or the output is the
            model's own file.
        Fail: The framework cannot read, export or run it, or this engine cannot run the file.
    """
    path = os.fspath(output)
    check_targets(model, path)
    if not 0 <= tolerance < float("inf"):
        raise InvalidArgument(message("tolerance", "It is no error to allow", got=str(tolerance)))
    source = open_source(model, framework, trust_pickle=trust_pickle)
    given = dict(inputs) if inputs else source.example(np.random.default_rng(seed))
    wishes = Wishes(given, opset, {name: dict(axes) for name, axes in (free or {}).items()})
    _check_free(wishes)
    folder, name = os.path.split(os.path.abspath(path))
    with tempfile.TemporaryDirectory(prefix=".sardonyx-", dir=folder) as own:
        _try(source, "exported", lambda: source.export(os.path.join(own, name), wishes))
        check_targets(model, *(os.path.join(folder, part) for part in os.listdir(own)))
        want = _try(source, "run", lambda: source.run(given))
        found = _checked(os.path.join(own, name), path, given, want)
        # The file itself comes last: what it refers to is there before it is.
        for part in sorted(os.listdir(own), key=name.__eq__):
            os.replace(os.path.join(own, part), os.path.join(folder, part))
    return ConversionReport(source.framework, path, tuple(found), tolerance)


def _check_free(wishes: Wishes) -> None:
    for name, axes in wishes.free.items():
        if name not in wishes.inputs:
            what = "There is no such input"
            do = nearest(name, wishes.inputs)
            expected = ", ".join(wishes.inputs)
            raise InvalidArgument(message(f"free {name}", what, expected=expected, do=do))
        rank = wishes.inputs[name].ndim
        if not all(0 <= axis < rank for axis in axes):
            what, expected = "There is no such axis", f"0 to {rank - 1}"
            raise InvalidArgument(
                message(f"free {name}", what, expected=expected, got=str([*axes]))
            )


def _try(source: ConvertSource, what: str, work: Any) -> Any:
    try:
        return work()
    except (SardonyxError, MemoryError):
        raise
    except Exception as error:
        said = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # exporters write in colours
        text = f"The model cannot be {what}: {type(error).__name__}: {said}"
        raise Fail(message(source.framework, text)) from error


def _checked(
    made: str, path: str, given: Mapping[str, Array], want: Sequence[Array]
) -> list[ConversionError]:
    """The errors of all outputs; texts of others speak of where the file was to be.

    Raises:
        Fail: The file cannot be run.
    """
    try:
        return _compared(made, given, want)
    except SardonyxError as error:
        what = "The converted model does not run, so it was not written"
        text = str(error).replace(made, path)
        raise Fail(message(path, f"{what}: {type(error).__name__}: {text}")) from error


def _compared(
    path: str, given: Mapping[str, Array], want: Sequence[Array]
) -> list[ConversionError]:
    """The errors of all outputs."""
    from sardonyx.api.session import InferenceSession

    session = InferenceSession(path)
    names = [i.name for i in session.get_inputs()]
    known = all(name in given for name in names)
    values = list(given.values())
    # Exporters leave out inputs that change nothing, and rename the others at times.
    feeds = {n: given[n] if known else values[k] for k, n in enumerate(names)}
    got = session.run(None, feeds)
    outputs = [o.name for o in session.get_outputs()]
    found = [_error(name, g, w) for name, g, w in zip(outputs, got, want, strict=False)]
    if len(got) != len(want):
        text = f"there are {len(got)} in the file and {len(want)} in the source"
        found.append(ConversionError("number of outputs", problem=text))
    return found


def _error(name: str, got: Any, want: Array) -> ConversionError:
    if not isinstance(got, np.ndarray):
        return ConversionError(name, problem=f"a {type(got).__name__} cannot be compared")
    if got.size == want.size and got.shape != want.shape and 1 in (*got.shape, *want.shape):
        want = want.reshape(got.shape)  # a column, for models of tables
    if got.shape != want.shape:
        text = f"its shape is {list(got.shape)}, the source's {list(want.shape)}"
        return ConversionError(name, problem=text)
    if got.dtype.kind not in "fc" or want.dtype.kind not in "fc":
        if got.dtype.kind in "OUS" or want.dtype.kind in "OUS":
            got, want = got.astype(str), want.astype(str)
        return ConversionError(name, differing=float((got != want).mean()) if got.size else 0.0)
    wide, exact = got.astype(np.complex128), want.astype(np.complex128)
    same = (wide == exact) | (np.isnan(wide) & np.isnan(exact))
    if not (np.isfinite(wide) | same).all() or not (np.isfinite(exact) | same).all():
        return ConversionError(name, problem="only one of the two is finite somewhere")
    difference = np.where(same, 0, np.abs(np.where(same, 0, wide) - np.where(same, 0, exact)))
    largest = float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0))
    absolute = float(difference.max(initial=0.0))
    return ConversionError(name, absolute, absolute / largest if largest else absolute)
