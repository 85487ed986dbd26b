"""What this machine and installation are, and whether they work: `sardonyx doctor`."""

from sardonyx.tools.doctor.examination import examine
from sardonyx.tools.doctor.findings import Findings

__all__ = ["Findings", "examine"]
