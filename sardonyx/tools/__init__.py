"""Tools for models: each a module or a folder; `sardonyx.cli` has their commands.

A tool never writes over what it reads.

Entry point: `explain`, `tune`, `view`. Read first: `explain.py`, `models.py` and `targets.py`.
"""
