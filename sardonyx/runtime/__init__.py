"""Plans being run: the contract of executables, frames, thread pools, memory, cancellation.

What runs a plan is an `Executable`, which each provider's folder implements: `cpu`, `cuda`. A frame
is leased to one run at a time. A run allocates nothing that a frame has already.

Entry point: `executable.Executable`. Read first: `executable.py`, `frame.py` and
`plan_tables.py`.
"""
