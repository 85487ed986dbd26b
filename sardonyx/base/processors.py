"""How many processors this process may use: affinity and cgroup quotas."""

from __future__ import annotations

import math
import os
from pathlib import Path

from sardonyx.base.files import text_of

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def allowed_processors() -> int:
    """Processors that the scheduler may put this process on."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def _quota_of(folder: Path) -> float:
    """Processors that a control group may use, in either version's files; inf if not limited."""
    words = text_of(folder / "cpu.max").split()
    if not words:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = [text_of(folder / name).strip() for name in names]
    try:
        quota, period = (int(x) for x in words)
    except ValueError:
        return math.inf
    return quota / period if quota > 0 and period > 0 else math.inf


def cgroup_quota(root: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> float:
    """The tightest processor quota of this process's control groups; inf if there is none.

    Args:
        root: Where control groups are mounted.
        membership: The kernel's list of the process's groups, lines `number:controllers:path`.
    """
    tightest = min(_quota_of(root), _quota_of(root / "cpu"))
    for line in text_of(membership).splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / "cpu" if controllers else root
        parts = [x for x in path.split("/") if x not in ("", "..")]
        for depth in range(1, len(parts) + 1):
            tightest = min(tightest, _quota_of(base.joinpath(*parts[:depth])))
    return tightest


def usable_processors() -> int:
    """Processors that can really run at once: affinity, cut by the quota (rounded up)."""
    quota = cgroup_quota()
    allowed = allowed_processors()
    return allowed if math.isinf(quota) else max(1, min(allowed, math.ceil(quota)))
