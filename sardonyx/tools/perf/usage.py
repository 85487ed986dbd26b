"""What this process took of the machine."""

from __future__ import annotations

import re
import sys

from sardonyx.base.files import text_of


def peak_memory_bytes() -> int:
    """The most memory that this process had at once; 0 where the system does not say.

    Linux counts what a parent had into `ru_maxrss`, and says the process's own in a file.
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB", text_of("/proc/self/status"), re.MULTILINE)
    if found:
        return int(found[1]) * 1024
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
