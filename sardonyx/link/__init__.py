"""Machine code of functions becomes one image, in memory or in a file.

An image runs at any address. Memory is never writable and executable at once.

Entry point: `blob.blob_of`. Read first: `blob.py`, `elf.py` and `executable_memory.py`.
"""
