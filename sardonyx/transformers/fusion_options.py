"""onnxruntime.transformers.fusion_options: see `sardonyx.tools.optimizer`."""

from sardonyx.tools.optimizer.options import FusionOptions

__all__ = ["FusionOptions"]
