"""Models of other frameworks to ONNX, each checked against what it came from."""

from sardonyx.tools.convert.convert import Report, convert

__all__ = ["Report", "convert"]
