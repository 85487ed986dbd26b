"""Tensor expressions and sizes as kernel statements.

Equal parts are written once; what loops leave as it is stands before them.

Entry point: `expression.Expression`. Read first: `expression.py`, `symbolic_integers.py` and
`representation.py`.
"""
