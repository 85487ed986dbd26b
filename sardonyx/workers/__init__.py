"""Child processes that compile while their parent goes on writing kernels.

A child that dies costs time, never a result: its work is done by the parent.

Entry point: `children.Children`. Read first: `children.py`, `child.py` and `processes.py`.
"""
