"""Plans being run: executables, frames, thread pools, memory, cancellation.

A frame is leased to one run at a time. A run allocates nothing that a frame has already.

Entry point: `executable.Executable`. Read first: `executable.py`, `frame.py` and
`plan_tables.py`.
"""
