"""What machine code is generated for: instruction set, vector width, registers, cache sizes.

A target is plain data: kernels for any target can be written on any machine.

Entry point: `target.Target`. Read first: `target.py` and `machine.py`.
"""
