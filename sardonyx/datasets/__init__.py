"""Three small models for first steps, under the names that onnxruntime gives them.

`logreg_iris.onnx` tells irises apart (with the nine numbers of onnxruntime's example, MIT licence),
`mul_1.onnx` multiplies by 1 to 6, `sigmoid.onnx` has one node.
"""

from __future__ import annotations

from pathlib import Path

from sardonyx.api.spelling import nearest
from sardonyx.base.errors import NoSuchFile, message

_FOLDER = Path(__file__).parent


def get_example(name: str) -> str:
    """The path of a model.

    Raises:
        NoSuchFile: There is none of this name.
    """
    known = sorted(path.name for path in _FOLDER.glob("*.onnx"))
    if name not in known:
        text = message("datasets", f"There is no example {name!r}", do=nearest(name, known))
        raise NoSuchFile(text)
    return str(_FOLDER / name)
