"""One diagnosis from start to end: gather, judge, conclude."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collbench.diagnose import costs, fresh, liveness, step_files
from collbench.diagnose.causes import Diagnosis, Evidence, conclude
from collbench.diagnose.inspection import inspect_file
from collbench.diagnose.step_rules import change_of, judge_steps
from collbench.diagnose.wanted import given_of_reference
from collbench.errors import CollbenchError
from collbench.findings import Finding
from collbench.profiles.store import Reference, load
from collbench.readers import Given, Reading
from collbench.results import Results


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a diagnosis is to look at."""

    profile: str | None = None
    steps: Sequence[Path] = ()
    logs: Sequence[Path] = ()
    machine: Sequence[Path] = ()
    """Topology, links, launch snippets: anything that `inspect` reads."""
    measure: bool = False
    record: Path | None = None
    """A run record to check instead of measuring."""
    pids: tuple[int, ...] = ()
    match: str | None = None
    look: bool = True
    """Look at running workers."""
    timeout_s: float = 900.0
    watch: bool = False
    """What is measured is to be compared with the profile's record: there has to be one."""


@dataclass(slots=True)
class Session:
    """A diagnosis and all that it rests on."""

    asked: Asked
    reference: Reference | None
    evidence: Evidence
    diagnosis: Diagnosis
    measured: Results | None
    cannot_tell: list[str] = field(default_factory=list)
    workers: int = 0

    def document(self, exit_code: int) -> dict[str, Any]:
        """Return the JSON document of `collbench diagnose`."""
        delta = self.diagnosis.delta_ms
        return {
            "schema": 1,
            "command": "diagnose",
            "exit_code": exit_code,
            "verdict": self.diagnosis.verdict,
            "summary": self.diagnosis.summary,
            "measured_delta_ms": None if delta is None else round(delta, 3),
            "profile": self.reference.id if self.reference else None,
            "live": self.evidence.live,
            "workers": self.workers,
            "cannot_tell": self.cannot_tell,
            "findings": [f.plain(with_cost=True) for f in self.diagnosis.findings],
        }


def run(asked: Asked, say: Callable[[str], None]) -> Session:
    """Gather the evidence that is asked for and conclude.

    Raises:
        CollbenchError: a file cannot be read, the profile is not found, or the bench failed.
    """
    reference = load(asked.profile) if asked.profile is not None else None
    given = given_of_reference(reference) if reference is not None else Given()
    arms = costs.arms_of(reference) if reference is not None else None
    if asked.watch and (arms is None or arms.profile is None):
        raise CollbenchError(
            f"--against {asked.profile}: has no record of its step to compare with",
            fix="name a profile that `collbench sweep` made, or compare a server's own timings: "
            "--steps BASELINE --steps NOW",
        )
    evidence = Evidence(arms=arms)
    cannot_tell = _steps(asked, evidence, given)
    _files(asked, evidence, given)
    workers = _live(asked, evidence, reference)
    measured = _measure(asked, evidence, reference, say)
    return Session(asked, reference, evidence, conclude(evidence), measured, cannot_tell, workers)


def _steps(asked: Asked, evidence: Evidence, given: Given) -> list[str]:
    if not asked.steps:
        return []
    found, cannot_tell = step_files.load_steps(list(asked.steps))
    evidence.steps = found
    compared = step_files.compare_loaded(found)
    source = " and ".join(path.name for path in asked.steps)
    if isinstance(compared, Reading):
        judged = judge_steps(compared, given)
        before, after = found.runs["before"], found.runs["after"]
        change = change_of(before.verify_ms, after.verify_ms, (before.repeats, after.repeats))
        evidence.delta_ms = change.delta if change else None
        if change is not None and not (change.blind and not change.significant):
            evidence.slower = change.significant and change.delta > 0
    else:
        judged = [compared]
    evidence.findings += [replace(finding, source=source) for finding in judged]
    return cannot_tell


def _files(asked: Asked, evidence: Evidence, given: Given) -> None:
    for path in (*asked.logs, *asked.machine):
        entry = inspect_file(path, given)
        if entry.error is not None and not entry.findings:
            raise CollbenchError(
                f"{path}: {entry.error}", fix=f"collbench inspect {path}   says what it can be"
            )
        evidence.findings += [replace(f, source=entry.path) for f in entry.findings]


def _live(asked: Asked, evidence: Evidence, reference: Reference | None) -> int:
    if reference is None or not asked.look:
        return 0
    log = asked.logs[0] if asked.logs and (asked.pids or asked.match) else None
    seen = liveness.look(reference, pids=asked.pids, match=asked.match, log=log)
    evidence.live = seen.verdict
    evidence.findings += seen.findings
    return seen.workers


def _measure(
    asked: Asked, evidence: Evidence, reference: Reference | None, say: Callable[[str], None]
) -> Results | None:
    if asked.record is not None:
        record = costs.load_record(asked.record)
        if evidence.arms is not None:
            fresh.check_comparable(record, evidence.arms, asked.record)
    elif asked.measure:
        arguments = fresh.bench_arguments(reference, evidence.arms)
        record = fresh.measure(arguments, timeout_s=asked.timeout_s, say=say)
    else:
        return None
    found, now = fresh.judge_fresh(record, evidence.arms)
    source = str(asked.record) if asked.record is not None else "measured now"
    timed = evidence.delta_ms is not None
    arms = evidence.arms
    if arms is not None and arms.profile is not None and not timed:
        change = costs.remeasured(now, arms.profile)
        evidence.delta_ms = change.delta_ms
        evidence.slower = fresh.is_slower(change, arms)
    evidence.findings += [replace(finding, source=source) for finding in found]
    if timed and evidence.slower and not any(f.code == "verify.comm_regression" for f in found):
        evidence.findings += _machine_is_well(evidence, now, source)
    return now


def _machine_is_well(evidence: Evidence, now: Results, source: str) -> list[Finding]:
    """Say so where a slower server runs on collectives that are as fast as recorded."""
    if evidence.arms is None or evidence.arms.profile is None:
        return []
    explained = costs.measured_change_ms(now, evidence.arms.profile, evidence.steps)
    if explained is None or any(f.expected_ms is not None for f in evidence.findings):
        return []
    return [
        Finding(
            code="verify.beyond_comm",
            expected_ms=explained,
            evidence=f"the collectives, measured now, explain {explained:+.2f} ms of "
            f"{evidence.delta_ms:+.2f}",
            next="the machine's collectives are as recorded: look at the server itself",
            source=source,
        )
    ]
