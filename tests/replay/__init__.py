"""What the compiler makes of published models, as digests: no change of structure changes one.

`digests.py` makes them, `models.py` names the models, `expected.txt` holds what they are, and
`python -m tests.replay` writes or compares them.
"""
