"""The run time's own functions in the kernel language: resolve sizes, place memory, walk a plan.

They run without Python's lock and raise nothing: what fails is recorded, and told in words by
`runtime.refusals`.

Entry point: `functions.library`. Read first: `functions.py`, `layout.py` and `execute.py`.
"""
