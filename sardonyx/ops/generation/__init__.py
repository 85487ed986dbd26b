"""Operators that generate sequences: greedy and beam search, sampling, and their decoders.

A decoder is a loop in the tensor language; its cache grows in place.

Entry point: `generation`. Read first: `generation.py`, `loop.py` and `choice.py`.
"""
