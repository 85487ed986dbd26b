"""The parts of a session, for what else of the package works with one: bindings, pipelines, tools.

Nothing else looks into a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sardonyx.api.array_runs import ArrayRuns
    from sardonyx.api.async_runs import AsyncRuns
    from sardonyx.api.session import InferenceSession
    from sardonyx.api.session_model import SessionModel
    from sardonyx.runtime.engine import Engine


def model_of(session: InferenceSession) -> SessionModel:
    """What a session runs, and how it was asked for."""
    return session._model


def engine_of(session: InferenceSession) -> Engine:
    """What runs a session's model now."""
    return session._model.engine


def runs_of(session: InferenceSession) -> ArrayRuns:
    """The runs of a session."""
    return session._runs


def async_runs_of(session: InferenceSession) -> AsyncRuns:
    """The runs of a session that nobody waits for."""
    return session._async_runs
