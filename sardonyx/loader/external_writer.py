"""Files that take their names when they are complete, and tensor data in files of their own."""

from __future__ import annotations

import errno
import os
from typing import BinaryIO

from sardonyx.base.files import check_target
from sardonyx.base.forks import compiling
from sardonyx.ir.constant import Constant
from sardonyx.loader import onnx_format as onnx
from sardonyx.loader.encode import Buffer, Encoder
from sardonyx.loader.tensors import packed_size

#: Data begin at multiples of this, so that they can be mapped.
_ALIGNMENT_BYTES = 4096


class replacing:  # noqa: N801 - used as a function
    """A file that takes its name when it is complete; until then another file may have it.

    Raises:
        OSError: The path is a folder's, or no file can be made beside it. No file is left.
        InvalidArgument: A device, a pipe or a socket has the path.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, "A file cannot be written over a folder", path)
        check_target(path)
        with compiling:
            import tempfile

        number, self._temporary = tempfile.mkstemp(prefix=".sardonyx-", dir=folder)
        self._file = os.fdopen(number, "w+b")

    def __enter__(self) -> BinaryIO:
        return self._file

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            with self._file:
                if kind is None:  # after a power cut there might be the name, and not the content
                    self._file.flush()
                    os.fsync(self._file.fileno())
            if kind is None:
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(self._temporary, 0o666 & ~mask)
                os.replace(self._temporary, self._path)
                return
        except BaseException:
            os.unlink(self._temporary)
            raise
        os.unlink(self._temporary)


class ExternalWriter:
    """Puts data of tensors into a file beside the model.

    Attributes:
        threshold: Data of so many bytes go there.
        names: Names of the tensors whose data are there.
    """

    def __init__(self, file: BinaryIO | None, location: str, threshold: int) -> None:
        self._file = file
        self._location = location
        self._offset = 0
        self.threshold = threshold
        self.names: list[str] = []

    def put(self, tensor: Encoder, data: Buffer, name: str) -> None:
        """Write data, if there is a file, and say in the tensor where they are."""
        padding = -self._offset % _ALIGNMENT_BYTES
        if self._file is not None:
            self._file.write(bytes(padding))
            self._file.write(data)
        self._place(tensor, padding, len(data))
        self.names.append(name)

    def leave_out(self, tensor: Encoder, constant: Constant) -> None:
        """Say in the tensor where data would be that nobody has."""
        size = packed_size(constant.dtype, constant.element_count)
        self._place(tensor, -self._offset % _ALIGNMENT_BYTES, size)

    def _place(self, tensor: Encoder, padding: int, size: int) -> None:
        offset = self._offset + padding
        self._offset = offset + size
        entries = {"location": self._location, "offset": str(offset), "length": str(size)}
        for key, value in entries.items():
            tensor.embed("external_data", Encoder(onnx.ENTRY).put("key", key).put("value", value))
        tensor.put("data_location", onnx.EXTERNAL)
