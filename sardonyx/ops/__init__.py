"""Operators: what each one means, written in the tensor language.

A lowering is the only description of an operator: shapes and types are read off it.

Entry point: `core.lower.lower`. Read first: `core/registry.py`, `core/lower.py` and
`onnx/elementwise.py`.
"""
