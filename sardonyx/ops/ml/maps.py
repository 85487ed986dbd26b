"""Operators of ai.onnx.ml on maps: ZipMap, DictVectorizer, CastMap."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.base.dtypes import BY_NAME, INT64, STRING, DType
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.object_types import ObjectType, object_type
from sardonyx.ops.core.object_values import call_for_object, call_for_tensor, object_of
from sardonyx.ops.core.registry import op
from sardonyx.ops.onnx.strings import text
from sardonyx.tensor.assumptions import assume_equal
from sardonyx.tensor.tensor import Tensor

_ML = "ai.onnx.ml"


def one_of(
    operator: str, names: str, texts: Sequence[str | bytes], numbers: Sequence[int]
) -> tuple[str, ...] | tuple[int, ...]:
    """The one of two lists of keys that is given.

    Raises:
        InvalidGraph: None is, or both are.
    """
    if bool(texts) == bool(numbers):
        raise InvalidGraph(message(operator, f"One of its attributes {names} must be given"))
    return tuple(map(text, texts)) or tuple(numbers)


@op("ZipMap", 1, domain=_ML)
def zip_map_1(
    x: Tensor,
    *,
    classlabels_int64s: Sequence[int] = (),
    classlabels_strings: Sequence[str | bytes] = (),
) -> Tensor:
    """A sequence of maps, one for each row: from class labels to the row's elements."""
    keys = one_of("ZipMap", "classlabels_*", classlabels_strings, classlabels_int64s)
    if x.rank not in (1, 2):
        got = str(list(x.shape))
        raise InvalidGraph(
            message("ZipMap", "The input has the wrong shape", expected="[C] or [N, C]", got=got)
        )
    assume_equal(x.shape[-1], len(keys), "ZipMap", "There is not one label for each column")
    row = object_type("map", x.dtype, (), key=STRING if classlabels_strings else INT64)
    rows = object_type("sequence", row)
    return call_for_object("maps.zip_rows", [x], rows, keys=keys)


def _map_of(x: Tensor, operator: str, key: DType) -> ObjectType:
    whole = object_of(x, "map", operator)
    if whole.key is not key:
        what = "The keys of the map have the wrong type"
        raise InvalidGraph(message(operator, what, expected=key.name, got=str(whole.key)))
    return whole


@op("DictVectorizer", 1, domain=_ML, flags=("objects",))
def dict_vectorizer_1(
    x: Tensor,
    *,
    int64_vocabulary: Sequence[int] = (),
    string_vocabulary: Sequence[str | bytes] = (),
) -> Tensor:
    """A row of the map's values in the order of a vocabulary: [1, C], as onnxruntime gives it."""
    keys = one_of("DictVectorizer", "*_vocabulary", string_vocabulary, int64_vocabulary)
    whole = _map_of(x, "DictVectorizer", STRING if string_vocabulary else INT64)
    return call_for_tensor(
        "maps.vector", [x], whole.element, (1, len(keys)), keys=keys, to=whole.element.name
    )


_TARGETS = {"TO_FLOAT": "float", "TO_STRING": "string", "TO_INT64": "int64"}


@op("CastMap", 1, domain=_ML, flags=("objects",))
def cast_map_1(
    x: Tensor,
    *,
    cast_to: str | bytes = "TO_FLOAT",
    map_form: str | bytes = "DENSE",
    max_map: int = 1,
) -> Tensor:
    """A row of the map's values by ascending key: [1, C], as onnxruntime gives it."""
    _map_of(x, "CastMap", INT64)
    target, form = _TARGETS.get(text(cast_to)), text(map_form)
    if target is None or form not in ("DENSE", "SPARSE") or (form == "SPARSE" and max_map < 1):
        raise InvalidGraph(message("CastMap", "Bad cast_to, map_form or max_map"))
    width = max_map if form == "SPARSE" else None
    return call_for_tensor(
        "maps.cast_map", [x], BY_NAME[target], (1, width), width=width, to=target
    )
