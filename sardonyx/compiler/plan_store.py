"""Plans of models that differ in weights alone: a retrained model is planned as the first one was.

A plan is found by the skeleton of the model's file (`loader.skeleton`) and the contents of those
weights that planning has read: zero points, scales, shapes. What is left to do for such a model is
what is done to its weights. Which weights were read is an entry of its own, under the skeleton.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sardonyx.base.dtypes import BY_NAME, DType
from sardonyx.base.errors import SardonyxError
from sardonyx.base.log import get_logger
from sardonyx.base.records import dataclass
from sardonyx.compiler.built import Built, prepare_with
from sardonyx.compiler.options import EngineOptions
from sardonyx.ir.constant import ArrayData, Constant
from sardonyx.link.blob import Blob
from sardonyx.link.executable_memory import load_blob
from sardonyx.loader.external import ExternalFiles
from sardonyx.loader.onnx_format import TENSOR
from sardonyx.loader.opened import files_beside, open_source
from sardonyx.loader.skeleton import Skeleton, skeleton_of
from sardonyx.loader.source import Source
from sardonyx.loader.tensors import TensorReader
from sardonyx.loader.wire import decode
from sardonyx.plan import serial
from sardonyx.runtime.budget import Budget
from sardonyx.runtime.provider import Generated, Provider
from sardonyx.store.cache import Cache, digest, engine_digest
from sardonyx.store.constants import Constants
from sardonyx.store.model_record import ModelRecord
from sardonyx.store.preparation import Preparation, Stored, size_bytes
from sardonyx.store.tuning_choices import changed_at

_log = get_logger("session")
#: Kinds of entries of the cache: a plan, and which weights planning read.
_PLAN, _READ = "plan", "read"
#: No plan is kept that depends on the contents of more weights, or that has more tables of its own.
_MOST_READ_BYTES = 16 * 2**20
_MOST_TABLES_BYTES = 4 * 2**20


class _NotKeptError(Exception):
    """A plan cannot be kept, and why."""


@dataclass(eq=False, slots=True)
class _Given:
    """What a kept plan reads or writes; see `preparation.Stored`."""

    shape: tuple[int, ...]
    dtype: DType
    label: str
    constant: Constant | None


@dataclass(slots=True)
class _KeptRecipe:
    """See `preparation.Recipe`."""

    preparations: list[Preparation]
    constants: list[_Given]


class StoredPlan:
    """The plan of one model, if there is one.

    Args:
        cache: Where plans are.
        key: Of the model without weights, and of all else that decides on its plan.
        skeleton: Where the weights are.
        opened: The model's bytes.
        external: The files beside it.
    """

    def __init__(
        self, cache: Cache, key: str, skeleton: Skeleton, opened: Source, external: ExternalFiles
    ) -> None:
        self._cache, self._key, self._skeleton = cache, key, skeleton
        self._opened, self._external = opened, external
        self._tensors = TensorReader(opened, external, allow_missing_data=False)
        self._weights: dict[int, Constant] = {}

    @classmethod
    def of(
        cls, cache: Cache, source: Any, options: EngineOptions, provider: Provider
    ) -> StoredPlan | None:
        """That of a model; None where no plan can be kept."""
        others = options.provider, options.initializers, options.data_files, options.choices
        if cache.folder is None or any(others) or options.plugins.needs_parts:
            return None
        try:
            opened, folder = open_source(source)
            skeleton = skeleton_of(opened)
        except SardonyxError:  # loading says so again
            return None
        if skeleton is None:
            return None
        facts = options.key(), provider.key, engine_digest(), changed_at(cache)
        key = digest(_PLAN, skeleton.digest, *facts)
        external = files_beside(source, options.folder or folder)
        return cls(cache, key, skeleton, opened, external)

    def find(self, options: EngineOptions, budget: Budget) -> Built | None:
        """The model with a plan that was kept; None if there is none.

        Raises:
            OutOfMemory: Its constants need more memory than the session may have.
        """
        read = self._read_before()
        if read is None:
            return None
        try:
            place = self._place(read)
            data = self._cache.read(place, _PLAN)
            if data is None:
                return None
            for number in self._skeleton.external:  # a file that is missing is missed
                self._weight(number)
            record, recipe, initial, code = self._model(data)
        except (SardonyxError, _NotKeptError, ValueError, TypeError, LookupError) as error:
            _log.debug("a plan that was kept is of no use: %s", error)
            return None
        generated = Generated(initial, lambda: (code, load_blob(Blob.from_bytes(code))))
        prepare = prepare_with(generated.initial, options, budget)
        constants = Constants(recipe, prepare, budget, options.cancel)
        record = replace(record, files=self._external.identities)
        return Built(record, generated, constants)

    def keep(self, built: Built, record: bytes, code: bytes) -> None:
        """Keep a plan, if others may have it.

        Args:
            built: What planning gave.
            record: Its record, as bytes.
            code: The code of its main plan.
        """
        if built.read is None or built.generated.written is None or built.record.unranked:
            return
        read = sorted({*built.read, *(self._read_before() or ())})
        try:
            place = self._place(read)
            data = b"".join(_written(built, record, code))
        except (SardonyxError, _NotKeptError) as error:
            _log.debug("the plan is not kept: %s", error)
            return
        if self._cache.put(place, _PLAN, data) is not None:
            self._cache.put(self._key, _READ, json.dumps(read).encode())

    def _read_before(self) -> list[int] | None:
        """Numbers of the weights that planning has read before."""
        written = self._cache.read(self._key, _READ)
        if written is None:
            return None
        found: list[int] = json.loads(written)
        return found

    def _weight(self, number: int) -> Constant:
        found = self._weights.get(number)
        if found is None:
            message = decode(TENSOR, self._opened, self._skeleton.initializers[number])
            found = self._weights[number] = self._tensors.constant(message, number=number)
        return found

    def _place(self, read: list[int]) -> str:
        """The key of the plan, by all that it depends on."""
        weights = list(map(self._weight, read))
        if sum(w.size_bytes for w in weights) > _MOST_READ_BYTES:
            raise _NotKeptError("it depends on too many weights")
        return digest(self._key, read, *(w.digest() for w in weights))

    def _model(self, data: bytes) -> tuple[ModelRecord, _KeptRecipe, Any, bytes]:
        """What `_written` wrote, over the weights of this model."""
        sections = _sections(data)
        head = json.loads(next(sections))
        record, initial, code, tables = (next(sections) for _ in range(4))
        table, places = np.frombuffer(tables, np.uint8), list[_Given]()
        for dtype_name, shape, label, kind, at in head["stored"]:
            dtype, sizes, constant = BY_NAME[dtype_name], tuple(shape), None
            given = _Given(sizes, dtype, label, None)
            if kind == "weight":
                constant = self._weight(at)
                if constant.dtype is not dtype or constant.shape != sizes:
                    raise _NotKeptError(f"the weight {label} is another one")
            elif kind == "table":
                part = table[at : at + size_bytes(given)].view(dtype.stored)
                constant = Constant(dtype, sizes, ArrayData(part.reshape(sizes)))
            given.constant = constant
            places.append(given)
        preparations = [
            Preparation(
                serial.from_bytes(next(sections)), [places[k] for k in read],
                [places[k] for k in made],
            )
            for read, made in head["preparations"]
        ]  # fmt: skip
        recipe = _KeptRecipe(preparations, [places[k] for k in head["constants"]])
        return ModelRecord.from_bytes(record), recipe, load_blob(Blob.from_bytes(initial)), code


def _written(built: Built, record: bytes, code: bytes) -> Iterator[bytes]:
    """A plan as sections, each with its length before it."""
    recipe, initial = built.constants.recipe, built.generated.written
    assert initial is not None  # noqa: S101 - `keep` has looked
    numbers: dict[Stored, int] = {}
    made = {b for p in recipe.preparations for b in p.outputs}
    tables = bytearray()

    def listed(buffers: Any) -> list[int]:
        return [numbers.setdefault(b, len(numbers)) for b in buffers]

    preparations = [(listed(p.constants), listed(p.outputs)) for p in recipe.preparations]
    head: Mapping[str, Any] = {
        "preparations": preparations,
        "constants": listed(recipe.constants),
        "stored": [_described(b, b in made, tables) for b in numbers],
    }
    sections = [json.dumps(head).encode(), record, initial(), code, bytes(tables)]
    for section in (*sections, *(serial.to_bytes(p.plan) for p in recipe.preparations)):
        yield len(section).to_bytes(8, "little")
        yield section


def _described(buffer: Stored, is_made: bool, tables: bytearray) -> list[Any]:
    """One that a plan reads or writes; what no weight holds goes to the tables."""
    what: list[Any] = [buffer.dtype.name, list(map(int, buffer.shape)), buffer.label]
    if is_made:
        return [*what, "made", 0]
    constant = buffer.constant
    if not isinstance(constant, Constant) or constant.parts is not None or buffer.dtype.is_code:
        raise _NotKeptError(f"{buffer.label} has no plain contents")
    if constant.number is not None:
        return [*what, "weight", constant.number]
    at = len(tables)
    if at + size_bytes(buffer) > _MOST_TABLES_BYTES:
        raise _NotKeptError("it has too large tables of its own")
    array = np.empty(tuple(what[1]), buffer.dtype.stored)
    array[...] = constant.array()
    tables += array.tobytes().ljust(-(-array.nbytes // 16) * 16, b"\0")
    return [*what, "table", at]


def _sections(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 8], "little")
        position += 8
        yield data[position : position + size]
        position += size
