"""Models of tables: scikit-learn, LightGBM, XGBoost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.tools.convert.source import Array, Wishes, package, rows


class SklearnSource:
    """Estimators and pipelines, by skl2onnx. See `source.ConvertSource`."""

    framework = "sklearn"

    def __init__(self, model: Any) -> None:
        self._model = model

    def example(self, random: np.random.Generator) -> dict[str, Array]:
        """A hundred rows."""
        return {"input": rows(random, _features(getattr(self._model, "n_features_in_", None)))}

    def export(self, target: str, wishes: Wishes) -> None:
        """By skl2onnx; probabilities are a tensor, not a list of maps."""
        skl2onnx = package("skl2onnx", "sklearn", "sklearn")
        types = package("skl2onnx.common.data_types", "sklearn", "sklearn")
        kinds = {
            "f": types.FloatTensorType,
            "i": types.Int64TensorType,
            "U": types.StringTensorType,
        }
        given = [
            (name, kinds.get(value.dtype.kind, types.FloatTensorType)([None, value.shape[1]]))
            for name, value in wishes.inputs.items()
        ]
        options = {id(self._model): {"zipmap": False}} if self._is_classifier else None
        model = skl2onnx.convert_sklearn(
            self._model, initial_types=given, target_opset=wishes.opset, options=options
        )
        _write(model, target)

    @property
    def _is_classifier(self) -> bool:
        return hasattr(self._model, "predict_proba") and hasattr(self._model, "classes_")

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Labels and probabilities, predictions as a column, or what is transformed."""
        given: Any = next(iter(inputs.values()))
        if len(inputs) > 1:
            pandas = package("pandas", "sklearn", "sklearn")
            given = pandas.DataFrame({name: v.reshape(-1) for name, v in inputs.items()})
        model = self._model
        if self._is_classifier:
            return [np.asarray(model.predict(given)), np.asarray(model.predict_proba(given))]
        if hasattr(model, "predict"):
            found = np.asarray(model.predict(given))
            labels = found if found.ndim > 1 or found.dtype.kind != "f" else found[:, None]
            also = [model.transform(given)] if hasattr(model, "transform") else []
            return [labels, *map(np.asarray, also)]
        return [np.asarray(model.transform(given))]


class BoostedSource:
    """Boosted trees of LightGBM or XGBoost, by onnxmltools. See `source.ConvertSource`."""

    def __init__(self, model: Any, framework: str) -> None:
        self.framework, self._model = framework, model

    @property
    def _booster(self) -> Any:
        """The model without scikit-learn's face."""
        for name in ("booster_", "get_booster"):
            found = getattr(self._model, name, None)
            if found is not None:
                return found() if callable(found) else found
        return self._model

    def example(self, random: np.random.Generator) -> dict[str, Array]:
        """A hundred rows."""
        booster = self._booster
        count = booster.num_feature() if self.framework == "lightgbm" else booster.num_features()
        return {"input": rows(random, _features(count))}

    def export(self, target: str, wishes: Wishes) -> None:
        """By onnxmltools; probabilities are a tensor, not a list of maps."""
        tools = package("onnxmltools", self.framework, self.framework)
        types = package("onnxmltools.convert.common.data_types", self.framework, self.framework)
        given = [(n, types.FloatTensorType([None, v.shape[1]])) for n, v in wishes.inputs.items()]
        options = {"initial_types": given, "target_opset": wishes.opset}
        if self.framework == "lightgbm":
            _write(tools.convert_lightgbm(self._model, zipmap=False, **options), target)
        else:
            _write(tools.convert_xgboost(self._model, **options), target)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """Labels and probabilities of a classifier; predictions as a column."""
        (given,) = inputs.values()
        model = self._model
        if hasattr(model, "predict_proba"):
            return [np.asarray(model.predict(given)), np.asarray(model.predict_proba(given))]
        if self.framework == "xgboost" and model is self._booster:
            given = package("xgboost", "xgboost", "xgboost").DMatrix(given)
        found = np.asarray(model.predict(given))
        if not self._classifies:
            return [found.reshape(len(found), -1)]
        shares = np.stack([1 - found, found], 1) if found.ndim == 1 else found
        return [shares.argmax(1), shares]

    @property
    def _classifies(self) -> bool:
        """Whether a booster alone gives probabilities."""
        booster = self._booster
        if self.framework == "lightgbm":
            objective = str(booster.params.get("objective") or booster.dump_model()["objective"])
        else:
            import json

            learner = json.loads(booster.save_config())["learner"]
            objective = str(learner["objective"]["name"])
        return objective.startswith(("binary", "multi"))


def _features(count: Any) -> int:
    if not isinstance(count, (int, np.integer)) or count < 1:
        what = "The model does not say how many columns it takes"
        raise InvalidArgument(message("convert", what, do="Add --input input=100xCOLUMNS"))
    return int(count)


def _write(model: Any, target: str) -> None:
    with open(target, "wb") as file:
        file.write(model.SerializeToString())
