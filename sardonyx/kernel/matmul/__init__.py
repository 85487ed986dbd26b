"""Contractions on processors: packed panels, register tiles, Winograd's filters, codes of few bits.

Results are the same bits however rows are shared by threads.

Entry point: `contraction.ContractionKernel`, which is put together from parts (`KernelParts`).
Read first: `contraction_schedule.py`, `contraction.py` and `tile_sums.py`.
"""
