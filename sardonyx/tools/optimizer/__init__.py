"""Graphs rewritten as ONNX: folded, simplified, fused, in half floats, and written to a file."""
