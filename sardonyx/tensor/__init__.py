"""The tensor language: what a whole array is, element by element, under NumPy's names.

Shapes and indices are polynomials of sizes. `evaluate.py` says what everything means.

Entry point: `language`. Read first: `tensor.py`, `scalar.py` and `language.py`.
"""
