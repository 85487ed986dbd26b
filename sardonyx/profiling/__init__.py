"""Profiles of runs: what was noted, as tables for people and as files for tools.

Noting costs nothing while nobody asks for it.

Entry point: `profile`. Read first: `profile.py`, `calls.py` and `table.py`.
"""
