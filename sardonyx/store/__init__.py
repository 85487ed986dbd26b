"""What is kept on the disk: the cache's entries, compiled kernels and layers, constants, bundles.

Every byte that is used was checked; files appear as a whole; owner and mode are checked at each
level.

Entry point: `cache.Cache`. Read first: `cache.py`, `entries.py` and `constants.py`.
"""
