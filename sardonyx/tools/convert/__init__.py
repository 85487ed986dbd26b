"""Models of other frameworks to ONNX, each checked against what it came from."""

from sardonyx.tools.convert.convert import ConversionReport, convert

__all__ = ["ConversionReport", "convert"]
