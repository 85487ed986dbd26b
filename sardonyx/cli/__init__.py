"""The `sardonyx` command: a module for each subcommand.

One module prints (`output.py`), and makes texts of others harmless. A module is imported when its
command is asked for.

Entry point: `main.main`. Read first: `main.py`, `output.py` and `run.py`.
"""
