"""How findings, processes and workers are worded; every text is made printable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collbench.live.processes import Process
from collbench.live.text import printable, safe_arguments

if TYPE_CHECKING:
    from collbench.live.verify import Worker


def finding(
    code: str, evidence: str, following: str, *, confidence: str = "high", line: int | None = None
) -> dict[str, Any]:
    """Return one finding, its texts made printable."""
    return {
        "code": code,
        "line": line,
        "confidence": confidence,
        "evidence": printable(evidence),
        "next": printable(following),
    }


def safe_title(process: Process) -> str:
    """Return a process's title, printable and without secrets."""
    return printable(" ".join(safe_arguments(process.arguments)) or f"[{process.name}]")


def name_of(worker: Worker) -> str:
    """Return how a worker is named in texts: ``rank 3 (pid 41)``."""
    pid = f"pid {worker.seen.process.pid}"
    return pid if worker.rank is None else f"rank {worker.rank} ({pid})"
