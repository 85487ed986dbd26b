"""Functions on values that are no tensors of numbers; plans call them by name.

A function takes and gives what the run's table holds: arrays (of `str` objects where the elements
are strings), `Items` for sequences, dicts for maps, None or the value itself for optionals. Arrays
that it is given lie in the run's memory: what it keeps of them it must copy. It gives equal results
for equal arguments, and raises `RuntimeException` for data that it cannot work on.

Nothing here knows of tensors or plans, and a module is imported when a plan first calls it.

Entry point: `functions.find`. Read first: `functions.py`, `items.py` and `text.py`.
"""
