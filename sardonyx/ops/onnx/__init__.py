"""ONNX's own operators, a module for each family.

They follow the standard's newest text; differences from onnxruntime are in docs/moving.md.

Entry point: `core.families.FAMILIES`. Read first: `elementwise.py`, `linear.py` and
`convolution.py`.
"""
