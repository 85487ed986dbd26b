"""Contractions on processors: packed panels, register tiles, Winograd's filters, codes of few bits.

Results are the same bits however rows are shared by threads.

Entry point: `product.ContractionKernel`. Read first: `product_schedule.py`, `product.py` and
`micro.py`.
"""
