"""A model file becomes a compiled engine, or one that was compiled before is found.

Nothing of a graph is kept after it: what stays is a plan, code, and constants. A model seen
before is loaded without most of this folder.

Entry point: `drive.create_engine`. Read first: `drive.py`, `build.py` and `compile_graph.py`.
"""
