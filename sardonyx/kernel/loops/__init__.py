"""Loops without contractions: maps, reductions and windows over one domain.

Sums are within 1.1e-6 of the sum of magnitudes, whatever their length.

Entry point: `loop_nest.LoopNestKernel`. Read first: `loop_nest_schedule.py`, `loop_nest.py` and
`row_passes.py`.
"""
