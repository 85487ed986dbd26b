"""What all operators share: the registry, lowering of graphs, signatures, loops and branches.

Operators register under a domain, a name and the first version that they hold for.

Entry point: `lower.lower`. Read first: `registry.py`, `lower.py` and `regions.py`.
"""
