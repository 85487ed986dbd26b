"""The graph: nodes, values and constants, with tracked uses and one order.

Rewrites go through patches (`patch.py`); the verifier holds after each pass.

Entry point: `graph.Graph`. Read first: `graph.py`, `value.py` and `patch.py`.
"""
