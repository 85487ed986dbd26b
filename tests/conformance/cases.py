"""ONNX's own backend test cases: those that the onnx package generates, and the models it ships.

Generating them takes ten seconds, in every process of a parallel run: the first keeps them for all.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import pickle
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

_DATA = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
_FOLDERS = ("simple", "pytorch-converted", "pytorch-operator")
#: Beside what pytest keeps there; one file for each version of what makes the cases.
_KEPT = pathlib.Path(__file__).resolve().parents[2] / ".pytest_cache" / "onnx_cases"
_PROTOS = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}


@dataclass(frozen=True)
class Case:
    """A model with runs of it.

    Attributes:
        name: The standard's.
        model: The model.
        runs: Inputs and expected outputs of each run, as arrays, lists, dicts, None.
        relative: Largest relative difference.
        absolute: Largest absolute difference besides.
    """

    name: str
    model: onnx.ModelProto
    runs: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    relative: float
    absolute: float

    def feeds(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """Inputs by name."""
        weights = {t.name for t in self.model.graph.initializer}
        names = [i.name for i in self.model.graph.input if i.name and i.name not in weights]
        return {n: x for n, x in zip(names, inputs, strict=False) if x is not None}


def plain(value: Any) -> Any:
    """Protocol buffers and NumPy scalars as arrays and lists."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case, in an order that is always the same."""
    made_by = f"{onnx.__version__} {np.__version__}".encode() + pathlib.Path(__file__).read_bytes()
    path = _KEPT / hashlib.sha256(made_by).hexdigest()[:16]
    with _alone(path.with_suffix(".lock")):
        try:
            kept = pickle.loads(path.read_bytes())
        except OSError:
            kept = [
                (c.name, c.model.SerializeToString(), c.runs, c.relative, c.absolute)
                for c in _made()
            ]
            _keep(path, pickle.dumps(kept, 5))
    return tuple(Case(name, onnx.load_from_string(model), *rest) for name, model, *rest in kept)


def _made() -> list[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cases overflow and divide by zero on purpose
        return [*_generated(), *_shipped(), *_light()]


@contextlib.contextmanager
def _alone(path: pathlib.Path) -> Iterator[None]:
    """One process at a time, where the system and the folder allow that; else all of them."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError, ImportError):
            import fcntl

            path.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(held.enter_context(path.open("w")), fcntl.LOCK_EX)
        yield


def _keep(path: pathlib.Path, content: bytes) -> None:
    """Write a file that nobody sees half of; a folder that cannot be written keeps nothing."""
    with contextlib.suppress(OSError):
        number, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(number, "wb") as file:
            file.write(content)
        pathlib.Path(name).replace(path)


def _generated() -> Iterator[Case]:
    from onnx.backend.test.case.model import collect_testcases as models
    from onnx.backend.test.case.node import collect_testcases as nodes

    for case in (*nodes(None), *models()):
        if case.model is not None:
            runs = [
                ([plain(x) for x in inputs], [plain(y) for y in outputs])
                for inputs, outputs in case.data_sets
            ]
            tolerances = max(case.rtol, 1e-3), max(case.atol, 1e-7)
            yield Case(case.name, case.model, runs, *tolerances)


def _shipped() -> Iterator[Case]:
    for path in sorted(p for f in _FOLDERS for p in (_DATA / f).glob("*/model.onnx")):
        model = onnx.load(path)
        sets = sorted(path.parent.glob("test_data_set_*"))
        runs = [
            (_side(data, "input", model.graph.input), _side(data, "output", model.graph.output))
            for data in sets
        ]
        yield Case(f"{path.parent.parent.name}/{path.parent.name}", model, runs, 1e-3, 1e-5)


def _side(data: pathlib.Path, side: str, values: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    found = []
    for number, value in zip(range(len(list(data.glob(f"{side}_*.pb")))), values, strict=False):
        proto = _PROTOS.get(value.type.WhichOneof("value") or "", onnx.TensorProto)()
        proto.ParseFromString((data / f"{side}_{number}.pb").read_bytes())
        found.append(plain(proto))
    return found


def _light() -> Iterator[Case]:
    for path in sorted((_DATA / "light").glob("*.onnx")):
        model = onnx.load(path)
        output = onnx.TensorProto()
        output.ParseFromString(path.with_name(f"{path.stem}_output_0.pb").read_bytes())
        weights = {t.name for t in model.graph.initializer}
        image = next(i for i in model.graph.input if i.name not in weights)
        shape = [d.dim_value for d in image.type.tensor_type.shape.dim]
        size = int(np.prod(shape))
        feed = (np.arange(size).reshape(shape) / size).astype(np.float32)
        yield Case(f"light/{path.stem}", model, [([feed], [plain(output)])], 1e-3, 1e-3)
