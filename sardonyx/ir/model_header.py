"""What a file says of its model as a whole."""

from __future__ import annotations

from sardonyx.base.records import dataclass


@dataclass()
class ModelHeader:
    """The fields of a `ModelProto` beside its graph and operator sets.

    Attributes:
        ir_version: The version of the format; 0 if there is no file.
        producer_name: What wrote the file.
        producer_version: Its version.
        domain: A name space for the model.
        model_version: The version of the model.
        doc_string: What the file says of the model in words.
    """

    ir_version: int = 0
    producer_name: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    doc_string: str = ""
