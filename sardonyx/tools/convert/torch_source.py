"""PyTorch: modules, and programs of torch.export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.tools.convert.source import Array, Wishes, flat, package


class TorchSource:
    """See `source.ConvertSource`.

    Args:
        model: A `torch.nn.Module`, or a `torch.export.ExportedProgram`.
    """

    framework = "torch"

    def __init__(self, model: Any) -> None:
        self._torch = package("torch", "torch", "torch")
        self._program = None if isinstance(model, self._torch.nn.Module) else model
        self._module = model.module() if self._program is not None else model.eval()

    def example(self, random: np.random.Generator) -> dict[str, Array]:
        """The inputs that a program was exported with; a module has none.

        Raises:
            InvalidArgument: It is a module.
        """
        given = getattr(self._program, "example_inputs", None)
        if not given:
            what = "A module does not say what it takes"
            do = "Add --input NAME=1x3x224x224 for each argument, or --inputs FILE.npz"
            raise InvalidArgument(message("torch", what, do=do))
        values = flat(list(given))
        return {f"input_{k}": value.detach().cpu().numpy() for k, value in enumerate(values)}

    def export(self, target: str, wishes: Wishes) -> None:
        """By torch.onnx's exporter of exported programs."""
        torch = self._torch
        package("onnxscript", "torch", "torch")
        given = tuple(torch.from_numpy(v.copy()) for v in wishes.inputs.values())
        options: dict[str, Any] = {
            "dynamo": True,
            "external_data": _is_large(self._module),
            "verbose": False,
        }
        options["opset_version"] = wishes.opset
        options["input_names"] = list(wishes.inputs)
        if self._program is not None:
            if wishes.free:
                what = "A program was exported with its free axes"
                raise InvalidArgument(message("--free", what, do="Name them in torch.export"))
            torch.onnx.export(self._program, (), target, **options)
            return
        if wishes.free:
            options["dynamic_shapes"] = tuple(
                {axis: torch.export.Dim(n) for axis, n in wishes.free.get(name, {}).items()} or None
                for name in wishes.inputs
            )
        torch.onnx.export(self._module, given, target, **options)

    def run(self, inputs: Mapping[str, Array]) -> list[Array]:
        """The module's tensors, those of nested results in order."""
        torch = self._torch
        given = [torch.from_numpy(value.copy()) for value in inputs.values()]
        with torch.no_grad():
            result = self._module(*given)
        if hasattr(result, "to_tuple"):
            result = result.to_tuple()
        return [
            value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
            for value in flat(result)
        ]


#: Beyond this the weights are in a file of their own: one file of ONNX has at most 2 GiB.
_MOST_BYTES = 1_900_000_000


def _is_large(module: Any) -> bool:
    tensors = (*module.parameters(), *module.buffers())
    return int(sum(t.numel() * t.element_size() for t in tensors)) > _MOST_BYTES
