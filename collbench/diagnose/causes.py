"""From evidence to ranked causes and a verdict.

The first finding is what to act on: what makes every number worthless, then a root cause that
accounts for the change, then what the timings say by themselves, then the rest. A cause without
a cost never outranks an explanation that the timings give.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from collbench.diagnose.costs import Arms, cost_of_absence_ms
from collbench.findings import Finding, ranked
from collbench.readers.steps import StepFile

Verdict = Literal["regression", "no_change", "undecided"]
SAID = {"regression": "regression", "no_change": "step not slower", "undecided": "undecided"}
"""A verdict in words: tokens per second may well have changed where the step has not."""

BLOCKING = ("data.wrong_results", "p2p.grant_hang", "shm.too_small", "nccl.algo_unavailable")
NOT_LIVE = frozenset(
    ("env.profile_absent", "env.partial_ranks", "env.value_differs", "env.value_absent",
     "env.overridden_by_server", "env.image_conflict", "env.lost_in_launcher",
     "env.unit_without_file", "env.not_listed_in_compose", "env.quotes_kept",
     "env.sourced_semicolon", "env.crlf", "nccl.invalid_value")
)  # fmt: skip
"""Findings that say that the server runs without (all of) the profile."""
ROOTS = ("env.", "nccl.", "transport.", "p2p.", "link.", "topo.", "stack.", "shm.", "path.")
EXPLAINS_SHARE = 0.5
"""A cause accounts for a change from this share of it on."""


@dataclass(slots=True)
class Evidence:
    """All that was gathered for one diagnosis."""

    findings: list[Finding] = field(default_factory=list)
    steps: StepFile | None = None
    delta_ms: float | None = None
    """Change of the step's median, from timings of the server or a fresh bench."""
    slower: bool | None = None
    """Whether it is beyond noise; None: nothing was measured, or too noisy."""
    arms: Arms | None = None
    live: str | None = None
    """Verdict on the running workers: live, different, unknown."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Ranked causes and the verdict."""

    verdict: Verdict
    findings: list[Finding]
    delta_ms: float | None
    summary: str


def conclude(evidence: Evidence) -> Diagnosis:
    """Rank the causes and decide."""
    found = [_priced(f, evidence) for f in ranked(_without_contradicted(evidence))]
    found += _beyond(found, evidence)
    found = sorted(ranked(found), key=lambda f: _place(f, evidence))
    verdict = _verdict(found, evidence)
    return Diagnosis(verdict, found, evidence.delta_ms, _summary(verdict, found, evidence))


def _without_contradicted(evidence: Evidence) -> Iterable[Finding]:
    """Drop what stronger evidence contradicts: the memory of the workers wins over a snippet."""
    for finding in evidence.findings:
        weaker = finding.code in NOT_LIVE and finding.source != "running workers"
        if evidence.live == "live" and weaker:
            continue
        yield finding


def _priced(finding: Finding, evidence: Evidence) -> Finding:
    """Add what running without the profile costs, where its records allow to compute it."""
    if finding.expected_ms is not None or finding.code not in NOT_LIVE or evidence.arms is None:
        return finding
    cost = cost_of_absence_ms(evidence.arms, evidence.steps)
    if cost is None:
        return finding
    return replace(finding, expected_ms=cost[0], evidence=f"{finding.evidence}; cost: {cost[1]}")


def _beyond(found: list[Finding], evidence: Evidence) -> list[Finding]:
    """Say so where the change is larger than all that communication explains."""
    delta = evidence.delta_ms
    explained = [f.expected_ms for f in found if f.expected_ms is not None]
    codes = {f.code for f in found}
    told = codes & {"verify.beyond_comm", "verify.skew_not_transfer", "verify.not_captured"}
    if not evidence.slower or delta is None or not explained or told:
        return []
    most = max(explained)
    if most >= EXPLAINS_SHARE * delta:
        return []
    return [
        Finding(
            code="verify.beyond_comm",
            expected_ms=most,
            evidence=f"{delta:+.2f} ms, of which communication explains {most:+.2f} ms at most",
            next="NCCL is not the only cause: look at clocks, other processes, the server's "
            "version and options",
        )
    ]


def _place(finding: Finding, evidence: Evidence) -> tuple[int, float]:
    """Return the tier of a finding, and what orders it within."""
    if finding.code in BLOCKING:
        return 0, 0.0
    share = _share(finding, evidence)
    root = finding.code.startswith(ROOTS) and finding.code != "env.unknown"
    if evidence.slower and root and share is not None and share >= EXPLAINS_SHARE:
        return 1, abs(1 - share)
    if finding.code.startswith("verify.") and finding.code != "verify.time_unknown":
        return 2, 0.0
    if root:
        return 3, -(share or 0.0) - (finding.confidence == "high") * 0.1
    return 4, 0.0


def _share(finding: Finding, evidence: Evidence) -> float | None:
    if finding.expected_ms is None or not evidence.delta_ms:
        return None
    return finding.expected_ms / evidence.delta_ms


def _verdict(found: list[Finding], evidence: Evidence) -> Verdict:
    codes = {finding.code for finding in found}
    if evidence.slower:
        return "regression"
    if evidence.slower is False:
        return "no_change"
    lost = [f for f in found if f.code in NOT_LIVE and (f.expected_ms or 0) > 0]
    if lost and evidence.delta_ms is None and "noise.too_noisy" not in codes:
        # Nothing was timed, but the server runs without what is known to make it faster.
        return "regression"
    return "undecided"


def _summary(verdict: Verdict, found: list[Finding], evidence: Evidence) -> str:
    """Return one line for a log or a mail."""
    delta = "" if evidence.delta_ms is None else f", step {evidence.delta_ms:+.3f} ms"
    live = "" if evidence.live is None else f", profile {evidence.live}"
    if not found:
        said = "nothing slower than it was" if verdict == "no_change" else "no cause found"
        return f"{SAID[verdict]}{delta}{live}: {said}"
    first = found[0]
    cost = "" if first.expected_ms is None else f" ({first.expected_ms:+.3f} ms expected)"
    return f"{SAID[verdict]}{delta}{live}: {first.code}{cost}: {first.evidence}"
