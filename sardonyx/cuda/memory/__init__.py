"""Memory of a device, and copies to and from it.

A block is given again only behind the work that used it (`order.py`). Sizes are checked before
memory is taken.

Entry point: `arena.Arena`. Read first: `arena.py`, `values.py` and `staging.py`.
"""
