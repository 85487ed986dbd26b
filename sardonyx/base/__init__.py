"""What every folder uses and that knows of no model: sizes, element types, errors, files, switches.

It imports nothing else of the package. Sizes are interned: equal ones are one object.

Entry point: `sizes`, `errors`, `knobs`. Read first: `sizes.py`, `integer.py` and `errors.py`.
"""
