"""What programs import: onnxruntime's names for sessions, values, options and devices.

Calls are checked here, once, so that the engine below takes what it is given. Nothing here
computes.

Entry point: `session.InferenceSession`. Read first: `session.py`, `making.py` and `feeds.py`.
"""
