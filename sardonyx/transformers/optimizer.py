"""onnxruntime.transformers.optimizer: see `sardonyx.tools.optimizer`."""

from sardonyx.tools.optimizer.model import optimize_model
from sardonyx.tools.optimizer.options import FusionOptions

__all__ = ["FusionOptions", "optimize_model"]
