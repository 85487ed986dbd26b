"""Runs the kernels that a GPU would get for a graph, one after the other, in `Machine`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto

from sardonyx.base import dtypes, sizes
from sardonyx.base.sizes import Dim
from sardonyx.compiler.build import compile_lowered
from sardonyx.compiler.compile_graph import Compiled
from sardonyx.kernel.language.verify import verify
from sardonyx.kernel.loops.block_sizes import Tiling
from sardonyx.llvm.ptx import ptx_target
from sardonyx.loader.load import load
from sardonyx.ops.core.lower import lower
from sardonyx.passes.pipeline import optimise
from sardonyx.runtime.arena import aligned_array
from sardonyx.tensor.tensor import Buffer
from tests.support.threads import Machine


class Emulated:
    """A model whose kernels run in `Machine`.

    Args:
        model: What to run. Its feeds are all inputs.
        tiling: How products are cut.
        join: Whether products of one factor become one.
    """

    def __init__(
        self, model: ModelProto, tiling: Tiling | None = None, *, join: bool = False
    ) -> None:
        self.graph = load(model.SerializeToString())
        optimise(self.graph, join=join)
        self.lowered = lower(self.graph)
        target = ptx_target("sm_80", tiling)
        self.compiled: Compiled
        self.compiled, self.numbers = compile_lowered(self.graph, self.lowered, target)
        for program in self.compiled.programs():
            verify(program)

    @property
    def names(self) -> list[str]:
        """The kernels in the order in which they run."""
        return [i.kernel.program.name for i in self.compiled.invocations]

    def blocks(self, symbols: Mapping[str, int]) -> list[int]:
        """How many blocks each kernel has."""
        return [sizes.evaluate(i.kernel.blocks, symbols) for i in self.compiled.invocations]

    def run(self, feeds: Mapping[str, Any], grid: int = 2) -> list[np.ndarray[Any, Any]]:
        """The outputs."""
        symbols: dict[str, int] = {}
        held: dict[Buffer, np.ndarray[Any, Any]] = {}
        for value in self.graph.inputs:
            buffer, given = self.lowered.inputs[value], np.asarray(feeds[value.name])
            held[buffer] = array = aligned_array(given.shape, given.dtype)
            array[...] = given
            for dim, size in zip(buffer.shape, array.shape, strict=True):
                atom = sizes.as_atom(dim) if isinstance(dim, sizes.Size) else None
                if atom is not None:
                    symbols[atom.name] = size

        def number(dim: Dim) -> int:
            return sizes.evaluate(dim, symbols)

        def array_of(buffer: Buffer) -> np.ndarray[Any, Any]:
            if buffer not in held:
                shape = tuple(map(number, buffer.shape))
                if hasattr(buffer.constant, "array"):
                    contents = np.asarray(buffer.constant.array())
                    held[buffer] = aligned_array(shape, contents.dtype)
                    held[buffer][...] = contents.reshape(shape)
                else:
                    kind = buffer.dtype.numpy if buffer.dtype is not dtypes.BOOL else np.uint8
                    made = aligned_array(shape, np.dtype(kind))
                    made.reshape(-1).view(np.uint8)[:] = 0xFF
                    held[buffer] = made
            return held[buffer]

        for invocation in self.compiled.invocations:
            arguments = [
                array_of(a) if isinstance(a, Buffer) else number(a) for a in invocation.arguments
            ]
            kernel = invocation.kernel
            blocks = number(kernel.blocks)
            if blocks:
                machine = Machine(kernel.program, arguments, number(kernel.scratch_bytes))
                machine.run(blocks, grid)
        outputs = [self.lowered.outputs[v] for v in self.graph.outputs]
        written = {r.tensor: r.buffer for g in self.compiled.groups for r in g.roots}
        return [array_of(written[t]) for t in outputs]
