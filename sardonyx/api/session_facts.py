"""What a session says about itself: inputs, outputs, devices, memory, kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.api.assignment import OrtEpAssignedSubgraph, assigned
from sardonyx.api.devices import OrtEpDevice
from sardonyx.api.memory import OrtMemoryInfo, info_of
from sardonyx.api.node_arg import NodeArg
from sardonyx.api.session_model import SessionModel
from sardonyx.base import errors
from sardonyx.base.errors import WrongType, message


class SessionFacts:
    """The part of `InferenceSession` that runs nothing; the methods of these names say more.

    Args:
        model: The session's.
    """

    def __init__(self, model: SessionModel) -> None:
        self._model = model

    def inputs(self) -> list[NodeArg]:
        """See `get_inputs`."""
        sizes = self._model.options.free_dimension_overrides
        return [NodeArg(v, sizes) for v in self._model.engine.inputs]

    def outputs(self) -> list[NodeArg]:
        """See `get_outputs`."""
        return [NodeArg(v) for v in self._model.engine.outputs]

    def overridable(self) -> list[NodeArg]:
        """See `get_overridable_initializers`."""
        return [NodeArg(v) for v in self._model.engine.record.overridable]

    def input_memory_infos(self) -> list[OrtMemoryInfo]:
        """See `get_input_memory_infos`."""
        return [info_of(self._model.loaded.kind) for _ in self._model.engine.inputs]

    def output_memory_infos(self) -> list[OrtMemoryInfo]:
        """See `get_output_memory_infos`."""
        return [info_of(self._model.loaded.kind) for _ in self._model.engine.outputs]

    def input_devices(self) -> list[OrtEpDevice]:
        """See `get_input_epdevices`."""
        loaded = self._model.loaded
        number = -1 if loaded.is_on_host else loaded.kind.number
        return [OrtEpDevice(number) for _ in loaded.engine.inputs]

    def assigned_subgraphs(self) -> list[OrtEpAssignedSubgraph]:
        """See `get_provider_graph_assignment_info`.

        Raises:
            Fail: The session-config entry that asks for it is not set.
        """
        key = "session.record_ep_graph_assignment_info"
        if self._model.options.config(key) != "1":
            what = f"Session configuration entry '{key}' must be set to \"1\""
            raise errors.Fail(message("session", what))
        return assigned(self._model.source, self._model.engine.claims)

    def release_graphs(self, graph_annotation_id: int) -> None:
        """See `release_captured_graph`.

        Raises:
            WrongType: That is no number.
        """
        if not isinstance(graph_annotation_id, (int, np.integer)):
            what, got = "This is no gpu_graph_id", repr(graph_annotation_id)
            raise WrongType(message("release_captured_graph", what, expected="int", got=got))
        engine = self._model.engine
        for each in (engine, *engine.variants.values()):
            each.executable.release_graphs(graph_annotation_id)

    def explained(self, verbose: bool) -> str:
        """See `explain`."""
        from sardonyx.api.notebook import Explanation
        from sardonyx.runtime.explain import explain

        return Explanation(explain(self._model.engine, verbose=verbose))

    def memory(self) -> dict[str, Any]:
        """See `memory`."""
        from sardonyx.api.notebook import MemoryUse
        from sardonyx.runtime.explain import memory

        return MemoryUse(memory(self._model.engine))
