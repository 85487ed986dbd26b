"""Planning: which tensors get memory, what one kernel computes, and how memory is laid out.

Every planning pass is in one list, and gives its reason where it does nothing. Plans are frozen
plain data, with sizes that each run's feeds decide.

Entry point: `pipeline.run`. Read first: `pipeline.py`, `groups.py` and `plan.py`.
"""
