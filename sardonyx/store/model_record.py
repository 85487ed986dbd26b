"""What the cache keeps of a model beside code and constants: inputs, outputs and plan."""

from __future__ import annotations

import json
from dataclasses import field
from typing import Any

import numpy as np

from sardonyx.base import dtypes, object_types
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import EngineError, InvalidArgument, message
from sardonyx.base.files import Identity, is_unchanged
from sardonyx.base.records import dataclass
from sardonyx.plan import serial
from sardonyx.plan.plan import Appended, Plan
from sardonyx.runtime.declared import ModelMetadata, ValueInfo

_HEADER = b"sdxsession 6\n"


#: dtype, shape, offset in the file, bytes.
ConstantPlace = tuple[DType, tuple[int, ...], int, int]


@dataclass(slots=True)
class ModelRecord:
    """See the module's text.

    Attributes:
        inputs: In the model's order; feeds come in this order.
        outputs: In the model's order.
        overridable: Initializers that the file lists as inputs, too.
        output_places: For each output, which output of the plan it is.
        metadata: What the file says about itself.
        constants: Where the plan's constants lie in their file.
        plan: What a run does.
        files: Other files that the model was made of, each with the state that it was in.
        unranked: Inputs of unknown rank. While there are any the plan is empty.
        appended: The outputs that continue an input, see `plan.inplace_append`.
        facts: What profiles say of the plan, see `plan.facts`.
        denotations: What axes of the inputs stand for, where the file says it.
        remarks: What users are warned of in the file, each time that a session is made of it.
    """

    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    overridable: tuple[ValueInfo, ...]
    output_places: list[int]
    metadata: ModelMetadata
    constants: list[ConstantPlace]
    plan: Plan
    files: list[tuple[str, Identity]] = field(default_factory=list)
    unranked: tuple[str, ...] = ()
    appended: list[Appended] = field(default_factory=list)
    facts: bytes = b""
    denotations: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def files_unchanged(self) -> bool:
        """Whether the external data that went into the session is still the same."""
        return all(is_unchanged(path, identity) for path, identity in self.files)

    def to_bytes(self) -> bytes:
        """For the cache."""
        m = self.metadata
        head = {
            "inputs": list(map(_value_out, self.inputs)),
            "outputs": list(map(_value_out, self.outputs)),
            "overridable": list(map(_value_out, self.overridable)),
            "places": self.output_places,
            "metadata": [
                m.producer_name, m.graph_name, m.domain, m.description, m.graph_description,
                m.version, m.custom_metadata_map,
            ],
            "constants": [[d.name, shape, at, size] for d, shape, at, size in self.constants],
            "files": self.files,
            "unranked": self.unranked,
            "appended": [[a.input, a.output, a.axis] for a in self.appended],
            "facts": len(self.facts),
            "denotations": self.denotations,
            "remarks": self.remarks,
        }  # fmt: skip
        text = json.dumps(head).encode()
        plan = serial.to_bytes(self.plan)
        return b"".join((_HEADER, len(text).to_bytes(8, "little"), text, plan, self.facts))

    @staticmethod
    def from_bytes(written: bytes) -> ModelRecord:
        """The reverse of `to_bytes`.

        Raises:
            EngineError: These are not the bytes of a record of this version.
        """
        if not written.startswith(_HEADER):
            raise EngineError(message("cache", "The entry is of another version"))
        start = len(_HEADER) + 8
        length = int.from_bytes(written[len(_HEADER) : start], "little")
        head = json.loads(written[start : start + length])
        end = len(written) - head["facts"]
        places = [
            (dtypes.BY_NAME[d], tuple(shape), at, size) for d, shape, at, size in head["constants"]
        ]
        return ModelRecord(
            tuple(map(_value_in, head["inputs"])),
            tuple(map(_value_in, head["outputs"])),
            tuple(map(_value_in, head["overridable"])),
            head["places"],
            ModelMetadata(*head["metadata"]),
            places,
            serial.from_bytes(written[start + length : end]),
            [(path, tuple(identity)) for path, identity in head["files"]],
            tuple(head["unranked"]),
            [Appended(*numbers) for numbers in head["appended"]],
            written[end:],
            tuple(head["denotations"]),
            tuple(head["remarks"]),
        )


def _value_out(value: ValueInfo) -> list[object]:
    return [value.name, value.dtype.name, list(value.shape)]


def _value_in(written: list[object]) -> ValueInfo:
    name, dtype, shape = written
    return ValueInfo(str(name), object_types.from_text(str(dtype)), tuple(shape))  # type: ignore[arg-type]  # JSON holds what `_value_out` wrote


def constants_in(whole: np.ndarray[Any, Any], record: ModelRecord) -> list[np.ndarray[Any, Any]]:
    """The constants of a session, in the bytes that have all of them.

    Raises:
        InvalidArgument: There are fewer bytes than the record says.
    """
    found = []
    for dtype, shape, offset, size_bytes in record.constants:
        if offset + size_bytes > whole.size:
            raise InvalidArgument(message("cache", "The file of constants is cut short"))
        part = whole[offset : offset + size_bytes].view(dtype.stored)
        found.append(part.reshape(shape))
    return found
