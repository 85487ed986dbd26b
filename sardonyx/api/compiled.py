"""What onnxruntime's sessions have inside, `_sess`: the same session, with other signatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.ortvalue_vector import OrtValueVector
from sardonyx.api.run_options import RunOptions


class CompiledSession:
    """A session, as onnxruntime's compiled class has it.

    Args:
        session: The session, which all names that are not here come from.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run_with_ort_values(
        self,
        feeds: Mapping[str, OrtValue],
        output_names: Sequence[str],
        run_options: RunOptions | None = None,
    ) -> OrtValueVector:
        """Outputs of one run; raises as `InferenceSession.run_with_ort_values` does."""
        found = self._session.run_with_ort_values(output_names, feeds, run_options)
        return OrtValueVector(found)
