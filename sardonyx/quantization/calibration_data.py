"""What calibration reads and what it finds."""

from __future__ import annotations

import json
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from pathlib import Path
from typing import Any, Self

import numpy as np

from sardonyx.base.bounded_json import read_json
from sardonyx.base.errors import InvalidArgument, SardonyxError, message
from sardonyx.base.files import check_target
from sardonyx.quantization.enums import CalibrationMethod

#: A histogram of each tensor makes up to 100 KB.
_MOST_BYTES = 1 << 30
_FIELDS = frozenset("avg std lowest highest hist hist_edges bins".split())
_FLOATS = frozenset("avg std lowest highest hist_edges".split())


class CalibrationDataReader(ABC):
    """Gives the feeds of calibration, one run at a time; whatever has `get_next` is one."""

    @classmethod
    def __subclasshook__(cls, subclass: type) -> bool:
        return callable(getattr(subclass, "get_next", None)) or NotImplemented

    @abstractmethod
    def get_next(self) -> Mapping[str, Any] | None:
        """The next arrays by input name; None when there are no more."""

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return self

    def __next__(self) -> Mapping[str, Any]:
        found = self.get_next()
        if found is None:
            raise StopIteration
        return found

    def __len__(self) -> int:
        raise NotImplementedError  # a reader need not know; onnxruntime's readers say it so

    def set_range(self, start_index: int, end_index: int) -> None:
        """Let `get_next` give the items from `start_index` to before `end_index`."""
        raise NotImplementedError


class ListReader(CalibrationDataReader):
    """Feeds that are in memory."""

    def __init__(self, feeds: list[Mapping[str, Any]]) -> None:
        self._feeds = list(feeds)
        self.rewind()

    def rewind(self) -> None:
        """Begin at the first item again."""
        self.set_range(0, len(self._feeds))

    def get_next(self) -> Mapping[str, Any] | None:
        """The next feeds."""
        return next(self._rest, None)

    def __len__(self) -> int:
        return len(self._feeds)

    def set_range(self, start_index: int, end_index: int) -> None:
        """Give these items only."""
        self._rest = iter(self._feeds[start_index:end_index])


class TensorData:
    """What was seen of one tensor: `lowest`, `highest`, `avg`, `std`, `hist`, `hist_edges`, `bins`.

    Raises:
        InvalidArgument: There is another field, or a float is not of 16 or 32 bits.
    """

    lowest: Any
    highest: Any
    avg: Any
    std: Any

    def __init__(self, **fields: Any) -> None:
        for name, value in fields.items():
            if name not in _FIELDS:
                expected = ", ".join(sorted(_FIELDS))
                what = "There is no such field"
                raise InvalidArgument(message("TensorData", what, expected=expected, got=name))
            dtype = getattr(value, "dtype", None)
            if name in _FLOATS and dtype not in (np.float16, np.float32):
                what = f"{name} is not of float16 or float32"
                raise InvalidArgument(message("TensorData", what, got=str(dtype or type(value))))
            setattr(self, name, value)
        self._names = tuple(fields)

    @property
    def range_value(self) -> tuple[Any, Any]:
        """Lowest and highest number."""
        return self.lowest, self.highest

    @property
    def avg_std(self) -> tuple[Any, Any]:
        """Mean and standard deviation."""
        return self.avg, self.std

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**{n: getattr(self, n) for n in self._names}, "CLS": type(self).__name__}

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Self:
        """From what `to_dict` gave, read back from JSON."""
        fields = {}
        for name, value in held.items():
            if name == "CLS":
                continue
            if isinstance(value, dict):
                value = np.array(value["data"], dtype=np.dtype(value["dtype"]))
            elif name in _FLOATS:
                value = np.array(value, np.float32)
            fields[name] = value
        return cls(**fields)


class TensorsData:
    """What was seen of all tensors, by name; behaves as a mapping.

    Attributes:
        calibration_method: How it was made.
        data: By name.
    """

    def __init__(
        self,
        calibration_method: CalibrationMethod,
        data: Mapping[str, TensorData | tuple[Any, ...]],
    ) -> None:
        self.calibration_method = calibration_method
        self.data: dict[str, TensorData] = {}
        for name, value in data.items():
            if isinstance(value, TensorData):
                self.data[name] = value
            elif len(value) == 2:
                self.data[name] = TensorData(lowest=value[0], highest=value[1])
            elif len(value) == 4:
                low, high, counts, bins = value
                self.data[name] = TensorData(lowest=low, highest=high, hist=counts, bins=bins)
            else:
                what = f"{name!r} has {len(value)} parts"
                raise InvalidArgument(message("TensorsData", what, expected="2 or 4"))

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __contains__(self, name: object) -> bool:
        return name in self.data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, name: str) -> TensorData:
        return self.data[name]

    def __setitem__(self, name: str, value: TensorData) -> None:
        if name not in self.data:
            what = f"{name!r} was not calibrated, so it cannot be changed"
            raise InvalidArgument(message("TensorsData", what))
        self.data[name] = value

    def keys(self) -> KeysView[str]:
        """Names."""
        return self.data.keys()

    def values(self) -> ValuesView[TensorData]:
        """What was seen."""
        return self.data.values()

    def items(self) -> ItemsView[str, TensorData]:
        """Both."""
        return self.data.items()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        method = self.calibration_method
        return {
            "CLS": type(self).__name__,
            "data": {name: value.to_dict() for name, value in self.data.items()},
            "calibration_method": {
                "CLS": "CalibrationMethod",
                "value": f"CalibrationMethod.{method.name}",
            },
        }

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Self:
        """From what `to_dict` gave, read back from JSON."""
        method = held["calibration_method"]
        name = method["value"] if isinstance(method, dict) else str(method)
        data = {key: TensorData.from_dict(value) for key, value in held["data"].items()}
        return cls(CalibrationMethod.from_string(name.split(".")[-1]), data)


def save_tensors_data(
    tensors_data: TensorsData, path: str | os.PathLike[str], *, smooth_quant: bool = False
) -> None:
    """Write ranges as JSON, as onnxruntime does; the file appears when it is complete.

    Args:
        tensors_data: The ranges.
        path: The file.
        smooth_quant: What the file says of SmoothQuant.
    """
    check_target(path)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    held = {**tensors_data.to_dict(), "smooth_quant": smooth_quant}
    number, temporary = tempfile.mkstemp(dir=target.parent, prefix=".sardonyx-")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump(held, file, default=_plain)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def load_tensors_data(path: str | os.PathLike[str]) -> TensorsData:
    """Read ranges that `save_tensors_data`, or onnxruntime's, wrote.

    Raises:
        NoSuchFile, Fail: There is no such file, or it cannot be read.
        InvalidArgument: It is no regular file, or holds something else.
    """
    # Infinite numbers are among what onnxruntime writes.
    what = "It is no file of calibration data"
    held = read_json(path, most_bytes=_MOST_BYTES, is_strict=False, otherwise=what)
    try:
        return TensorsData.from_dict(held)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, SardonyxError) as error:
        what += f" ({type(error).__name__}: {error})"
        raise InvalidArgument(message(str(path), what, do="Delete it")) from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"data": value.tolist(), "dtype": str(value.dtype), "CLS": "numpy.array"}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not for JSON")
