"""Graphs rewritten as ONNX: folded, simplified, fused, in half floats, and written to a file.

`model.optimize_model` and `options.FusionOptions` have the names of onnxruntime.transformers.
"""
