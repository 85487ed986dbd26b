"""What is behind a session, for tests of those classes themselves, which call and change them.

Tests that only look ask `sardonyx.api.inspection`. Each file that imports this one stands in a list
of `tests/test_structure.py`, with the reason.
"""

from __future__ import annotations

from typing import Any

from sardonyx.api.parts import engine_of, runs_of
from sardonyx.api.session import InferenceSession

__all__ = ["engine_of", "executable_of", "runs_of"]


def executable_of(session: InferenceSession) -> Any:
    """What runs the session's first plan."""
    return engine_of(session).executable
