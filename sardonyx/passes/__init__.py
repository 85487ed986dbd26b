"""Passes over the graph: shape inference, folding, and rewrites before anything gets memory.

`pipeline.py` is all there is to their order. A pass leaves the verifier content.

Entry point: `pipeline.optimise`. Read first: `pipeline.py`, `infer.py` and `expand.py`.
"""
