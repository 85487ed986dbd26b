"""Which classes here are what a device implements; a type checker proves that they fit."""

from __future__ import annotations

from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.module import Module
from sardonyx.cuda.driver.stream import Event, Stream
from sardonyx.cuda.libraries.libraries import Libraries
from sardonyx.cuda.memory.arena import Arena, MemoryBlock
from sardonyx.cuda.memory.values import CudaMemory
from sardonyx.cuda.provider import CudaProvider
from sardonyx.cuda.run.graphs import RunGraph
from sardonyx.cuda.run.launching import Launches
from sardonyx.cuda.run.timing import Timeline
from sardonyx.llvm.ptx import emit_ptx
from sardonyx.runtime.device import DeviceInterfaces

CUDA_INTERFACES = DeviceInterfaces(
    CudaProvider, Device, Stream, Event, Arena, MemoryBlock, CudaMemory, emit_ptx, Module,
    Launches, RunGraph, Timeline, Libraries,
)  # fmt: skip
