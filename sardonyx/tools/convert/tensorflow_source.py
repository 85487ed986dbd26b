"""TensorFlow and Keras, by tf2onnx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.tools.convert.source import Array, Wishes, flat, package


class TensorflowSource:
    """See `source.ConvertSource`.

    Args:
        model: A Keras model, a `tf.function` with a signature, or a loaded SavedModel.
    """

    framework = "tensorflow"

    def __init__(self, model: Any) -> None:
        self._tf = package("tensorflow", "tensorflow", "tensorflow")
        signatures = getattr(model, "signatures", None)
        if signatures is not None and not hasattr(model, "predict"):
            if "serving_default" not in signatures:
                names = ", ".join(signatures) or "none"
                what = "The SavedModel has no signature serving_default"
                raise InvalidArgument(message("tensorflow", what, got=names))
            # The function alone does not keep its variables alive.
            self._kept, model = model, signatures["serving_default"]
        self._model = model

    def _specs(self) -> dict[str, Any]:
        """What the model takes, by name."""
        model = self._model
        if hasattr(model, "structured_input_signature"):
            positional, named = model.structured_input_signature
            return {s.name: s for s in positional} | dict(named)
        return {t.name.partition(":")[0]: t for t in getattr(model, "inputs", None) or ()}

    def example(self, random: np.random.Generator) -> dict[str, Array]:
        """Normally distributed floats and zeros; axes without a size have one element."""
        found = {}
        for name, spec in self._specs().items():
            dtype = np.dtype(getattr(spec.dtype, "as_numpy_dtype", spec.dtype))
            shape = [d or 1 for d in tuple(spec.shape)]
            made = random.standard_normal(shape) if dtype.kind == "f" else np.zeros(shape)
            found[name] = made.astype(dtype)
        if not found:
            what = "The model does not say what it takes"
            raise InvalidArgument(message("tensorflow", what, do="Add --input NAME=SHAPE"))
        return found

    def export(self, target: str, wishes: Wishes) -> None:
        """A function of the given inputs' shapes, except for the axes that may change."""
        tf, tf2onnx = self._tf, package("tf2onnx", "tensorflow", "tensorflow")
        specs = []
        for name, value in wishes.inputs.items():
            free = wishes.free.get(name, {})
            shape = [None if k in free else d for k, d in enumerate(value.shape)]
            specs.append(tf.TensorSpec(shape, value.dtype, name=name))
        names = list(wishes.inputs)

        @tf.function(input_signature=specs)  # type: ignore[untyped-decorator]  # TensorFlow has no types
        def called(*given: Any) -> Any:
            return self._call(dict(zip(names, given, strict=True)))

        tf2onnx.convert.from_function(
            called, input_signature=specs, opset=wishes.opset, output_path=target
        )

    def _call(self, inputs: Mapping[str, Any]) -> Any:
        if hasattr(self._model, "structured_input_signature"):
            return self._model(**inputs)
        given = list(inputs.values())
        return self._model(given[0] if len(given) == 1 else given)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The model's tensors, in order."""
        given = {name: self._tf.constant(value) for name, value in inputs.items()}
        return [np.asarray(value) for value in flat(self._call(given))]
