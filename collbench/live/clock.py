"""When a process started, on the clock that files are dated with."""

from __future__ import annotations

import os
from pathlib import Path


def started_at(ticks: int) -> float:
    """Return the time, seconds since the epoch, of a start time in ticks after boot."""
    for line in Path("/proc/stat").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("btime "):
            return int(line.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
    return 0.0
