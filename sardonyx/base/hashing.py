"""BLAKE2b alone: `hashlib` loads OpenSSL, which takes as long as ten modules of the engine."""

try:
    from _blake2 import blake2b
except ImportError:  # another interpreter than CPython
    from hashlib import blake2b

__all__ = ["blake2b"]
