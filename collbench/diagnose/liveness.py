"""Whether the running server has the profile: the live evidence among a diagnosis's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from collbench.findings import CODES, Finding
from collbench.profiles.store import Reference


@dataclass(frozen=True, slots=True)
class Liveness:
    """What was seen of the running workers."""

    verdict: str | None
    """live, different, unknown; None where no worker was found."""
    workers: int = 0
    findings: list[Finding] = field(default_factory=list)


def look(
    reference: Reference, *, pids: tuple[int, ...] = (), match: str | None = None,
    log: Path | None = None,
) -> Liveness:  # fmt: skip
    """Look at every worker once.

    Raises:
        CollbenchError: a pid that is not there, a wrong pattern, a log that cannot be read.
    """
    from collbench.live import verify as live

    stored = reference.profile
    wanted = live.Wanted(
        values=reference.values,
        profile_id=reference.id,
        library=stored.library if stored else "",
        nranks=stored.scope.nranks if stored else 0,
        pids=pids,
        match=match,
        log=log,
    )
    result = live.verify(wanted)
    if not result.workers:
        return Liveness(None)
    found = [
        Finding(
            code=entry["code"],
            line=entry["line"],
            confidence=entry["confidence"],
            evidence=entry["evidence"],
            next=entry["next"],
            source="running workers",
        )
        for entry in result.findings
        if entry["code"] in CODES
    ]
    return Liveness(result.verdict, len(result.workers), found)
