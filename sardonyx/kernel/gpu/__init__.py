"""Contractions, attention and rows for thread blocks of a GPU.

Threads of a block meet at barriers in uniform control flow; the verifier checks it.

Entry point: `tile.TileKernel`. Read first: `tile_schedule.py`, `tile.py` and `warp.py`.
"""
