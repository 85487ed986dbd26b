"""Operators of ai.onnx.ml: features, linear models, trees, maps.

Ensembles of trees are tables that one kernel walks.

Entry point: `core.families.FAMILIES`. Read first: `features.py`, `trees.py` and `linear.py`.
"""
