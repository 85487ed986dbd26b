"""Text from decoder models, token by token.

The cache of a decoder stays where it grows, on the device or the host; only tokens are fetched.

Entry point: `generate.generate`. Read first: `generate.py`, `roles.py` and `batch.py`.
"""
