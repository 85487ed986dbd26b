"""A model that was quantised, as onnxruntime's quantisers hand it out."""

from __future__ import annotations

import os
from typing import Any

from sardonyx.base.errors import NotFound, installing, message
from sardonyx.ir.graph import Graph
from sardonyx.loader.writer import write
from sardonyx.quantization.model import write_model


class WritableModel:
    """A graph that can be written.

    Attributes:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @property
    def model(self) -> Any:
        """The `ModelProto`, made anew each time.

        Raises:
            NotFound: The package onnx is not installed.
        """
        try:
            import onnx
        except ImportError:
            what = "A ModelProto is the package onnx's, which is missing"
            raise NotFound(message("model", what, do=installing("tools"))) from None
        return onnx.load_from_string(write(self.graph))

    def save_model_to_file(
        self, output_path: str | os.PathLike[str], use_external_data_format: bool = False
    ) -> None:
        """Write the model; the file appears when it is complete."""
        write_model(self.graph, output_path, external=use_external_data_format)
