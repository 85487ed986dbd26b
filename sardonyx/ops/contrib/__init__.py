"""Operators of com.microsoft, a module for each family.

Numbers of the data that are out of range are faults that name them.

Entry point: `core.families.FAMILIES`. Read first: `attention.py`, `qlinear.py` and `blocks.py`.
"""
