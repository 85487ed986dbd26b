"""Loops without contractions: maps, reductions and windows over one domain.

Sums are within 1.1e-6 of the sum of magnitudes, whatever their length.

Entry point: `rows.LoopNestKernel`. Read first: `rows_schedule.py`, `rows.py` and
`register_blocking.py`.
"""
