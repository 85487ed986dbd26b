"""Which framework a model is of, from its file or its object."""

from __future__ import annotations

import os
from typing import Any

from sardonyx.base.errors import Fail, InvalidArgument, NoSuchFile, SardonyxError, message
from sardonyx.base.files import check_file
from sardonyx.tools.convert.source import ConvertSource, attribute, package, unpickled
from sardonyx.tools.convert.table_source import BoostedSource, SklearnSource
from sardonyx.tools.convert.tensorflow_source import TensorflowSource
from sardonyx.tools.convert.torch_source import TorchSource

FRAMEWORKS = ("torch", "tensorflow", "sklearn", "lightgbm", "xgboost")
_PICKLES = (".pkl", ".pickle", ".joblib")


def open_source(
    model: Any, framework: str | None = None, *, trust_pickle: bool = False
) -> ConvertSource:
    """A model of another framework.

    Args:
        model: The model itself; `package.module:name` of one, or of a function that gives one; or a
            file: .pt2 (torch.export), .keras, .h5 or a SavedModel's folder, .txt (LightGBM), .json
            or .ubj (XGBoost), .pkl or .joblib.
        framework: One of FRAMEWORKS; None to find out.
        trust_pickle: Whether a pickle may be read: that runs whatever code is in it.

    Raises:
        NoSuchFile: There is no such file.
        InvalidArgument: There is no such model, or it is not known how to read it.
        Fail: The framework cannot read the file, or the function that makes the model fails.
    """
    if framework not in (None, *FRAMEWORKS):
        what = "There is no such framework"
        raise InvalidArgument(
            message("convert", what, expected=", ".join(FRAMEWORKS), got=str(framework))
        )
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        try:
            framework, model = _opened(path, framework, trust_pickle)
        except (SardonyxError, OSError, MemoryError):
            raise
        except Exception as error:  # of the framework that reads it, or of the code that makes it
            said = " ".join(str(error).split())
            text = f"The model cannot be opened: {type(error).__name__}: {said}"
            raise Fail(message(path, text)) from error
    framework = framework or _framework_of(model)
    if framework is None:
        what = f"It is not known what a {type(model).__name__} is"
        do = "Say which with --from"
        raise InvalidArgument(message("convert", what, expected=", ".join(FRAMEWORKS), do=do))
    if framework == "torch":
        return TorchSource(model)
    if framework == "tensorflow":
        return TensorflowSource(model)
    return SklearnSource(model) if framework == "sklearn" else BoostedSource(model, framework)


def _opened(path: str, framework: str | None, trusted: bool) -> tuple[str | None, Any]:
    """The model at a path, and its framework if the path says it."""
    if not os.path.exists(path):
        if ":" not in path:
            what = "There is no such file"
            expected = "a model's file, or package.module:name"
            raise NoSuchFile(message(path, what, expected=expected))
        return framework, _made(attribute(path))
    is_folder = os.path.isdir(path)
    if not is_folder:
        check_file(path)  # what reads it would wait for a pipe
    lower = path.lower()
    if lower.endswith(_PICKLES):
        return framework, unpickled(path, trusted)
    if is_folder or framework == "tensorflow" or lower.endswith((".keras", ".h5")):
        tf = package("tensorflow", "tensorflow", path)
        load = tf.saved_model.load if is_folder else tf.keras.models.load_model
        return "tensorflow", load(path)
    if lower.endswith((".pt2", ".pt", ".pth")) or framework == "torch":
        return "torch", _torch_file(path, trusted)
    if lower.endswith(".txt") or framework == "lightgbm":
        return "lightgbm", package("lightgbm", "lightgbm", path).Booster(model_file=path)
    if lower.endswith((".json", ".ubj")) or framework == "xgboost":
        return "xgboost", package("xgboost", "xgboost", path).Booster(model_file=path)
    what = "It is not known what this file is"
    raise InvalidArgument(message(path, what, do="Say which framework it is of with --from"))


def _torch_file(path: str, trusted: bool) -> Any:
    torch = package("torch", "torch", path)
    if path.lower().endswith(".pt2"):
        return torch.export.load(path)
    if not trusted:
        what = "Reading a pickled module runs whatever code is in it"
        raise InvalidArgument(message(path, what, do="Add --trust-pickle if you trust the file"))
    found = torch.load(path, weights_only=False, map_location="cpu")
    if not isinstance(found, torch.nn.Module):
        what = f"The file holds a {type(found).__name__}, not a module"
        raise InvalidArgument(message(path, what, do="Name a function that makes the module"))
    return found


def _made(found: Any) -> Any:
    """A model: what a class or a function gives, or the object itself."""
    is_model = _framework_of(found) is not None and not isinstance(found, type)
    return found() if callable(found) and not is_model else found


def _framework_of(model: Any) -> str | None:
    """By the packages of its class and of what that is derived from."""
    packages = {"keras": "tensorflow", **{name: name for name in FRAMEWORKS}}
    for kind in type(model).__mro__:
        found = packages.get(kind.__module__.partition(".")[0])
        if found is not None:
            return found
    return None
