"""Both ways to multiply on processors that have registers for matrices."""

from dataclasses import replace

import pytest

from sardonyx.kernel.loops.block_sizes import FEW_CORES
from sardonyx.targets import target
from sardonyx.targets.target import host_target

FORMS = ("vectors", "matrices")


def choose(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions multiply in vectors, or in registers for matrices; skip where there are none."""
    host = host_target()
    if form == "matrices":
        if not host.block_sizes.matrices:
            pytest.skip("the processor has no registers for matrices")
        return
    features = [f for f in host.features.split(",") if not f.startswith("+amx")]
    block_sizes = FEW_CORES if host.block_sizes.matrices else host.block_sizes
    plain = replace(host, features=",".join(features), block_sizes=block_sizes)
    monkeypatch.setattr(target, "_checked_target", lambda isa: plain)
