"""ONNX files become graphs, and graphs files.

Files are untrusted: sizes are checked before anything is allocated. Weights are read when
somebody asks for them.

Entry point: `load.load`. Read first: `load.py`, `wire.py` and `tensors.py`.
"""
