"""Planning: which tensors get memory, what one kernel computes, and how memory is laid out.

Plans are frozen plain data, with sizes that each run's feeds decide.

Entry point: `grouping.make_groups`. Read first: `inline.py`, `groups.py` and `plan.py`.
"""
