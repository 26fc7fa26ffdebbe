"""Turn the files of a launch's ranks into one run, with a typed outcome."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from collbench.job import Case, CaseTimes, Job, Outcome, RankResult, Run, StepTimes
from collbench.readers.nccl_proof import proof_of

_PARTS = TypeAdapter(list[RankResult])
_WORST: tuple[Outcome, ...] = ("wrong", "refused", "unsupported", "died", "hung")
"""Which outcome speaks for the launch where ranks differ: the most telling one first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankEnd:
    """How the process of one rank ended, and what it left."""

    text: str = ""
    """Its result file; empty if there is none."""
    signal: int | None = None
    exit_code: int | None = 0
    killed: bool = False
    """Ended by the pool: its own deadline, or because another rank had died."""
    log_tail: str = ""
    library_log: str = ""
    """What the communication library logged (proof run)."""


def merge(
    job: Job, ends: Sequence[RankEnd], *, settings: Mapping[str, str], timed_out: bool
) -> list[Run]:
    """Return one run per part of the job (`Job.communicators`, else one).

    Args:
        job: What was asked.
        ends: Of every rank, by rank.
        settings: What the launch ran with, for the run's record.
        timed_out: The deadline passed before every rank had ended.
    """
    parts = [_parts(end.text) for end in ends]
    wanted = max(1, len(job.communicators))
    runs = []
    for index in range(wanted):
        results = [part[index] if index < len(part) else None for part in parts]
        extra = job.communicators[index] if job.communicators else {}
        runs.append(_run(job, ends, results, {**settings, **extra}, timed_out))
    return runs


def _parts(text: str) -> list[RankResult]:
    if not text:
        return []
    try:
        return _PARTS.validate_python(json.loads(text)["parts"])
    except (ValidationError, json.JSONDecodeError, KeyError, TypeError):
        return []


def _run(
    job: Job,
    ends: Sequence[RankEnd],
    results: Sequence[RankResult | None],
    settings: dict[str, str],
    timed_out: bool,
) -> Run:
    outcome, reason, failed = _outcome(job, ends, results, timed_out)
    there = [result for result in results if result is not None]
    run = Run(
        job_id=job.job_id,
        settings=settings,
        outcome=outcome,
        reason=reason,
        failed_rank=failed,
        ranks=tuple(r.facts for r in there if r.facts is not None),
        warnings=tuple(dict.fromkeys(w for r in there for w in r.warnings)),
    )
    if job.proof_log is not None:
        proof = proof_of("\n".join(end.library_log for end in ends))
        run = replace(run, choices=proof.choices, transports=proof.transports)
        seen = proof.env_seen
    else:
        seen = {}
    if len(there) < len(results):
        return replace(run, env_seen=seen)
    return replace(
        run,
        cases=_cases(job.cases, there),
        step=_step(there) if outcome in ("ok", "wrong") else None,
        functions=_functions(there),
        pairs=tuple(pair for r in there for pair in r.pairs),
        env_seen=seen or dict(there[0].env_seen),
    )


def _outcome(
    job: Job, ends: Sequence[RankEnd], results: Sequence[RankResult | None], timed_out: bool
) -> tuple[Outcome, str, int | None]:
    found: dict[Outcome, tuple[int, str]] = {}
    told: dict[Outcome, tuple[int, str]] = {}
    """Deaths by an exception: often the echo of another rank's death without a word."""
    for rank, (end, result) in enumerate(zip(ends, results, strict=True)):
        if result is not None and result.outcome == "died":
            told.setdefault("died", (rank, result.reason))
        elif result is not None and result.outcome not in ("ok", "hung"):
            found.setdefault(result.outcome, (rank, result.reason))
        elif result is None or result.outcome == "hung":
            if not end.killed:
                found.setdefault("died", (rank, _death(end)))
            elif timed_out:
                text = f"no answer within {job.deadline_s:g} s" + (
                    f" ({result.reason})" if result is not None and result.reason else ""
                )
                found.setdefault("hung", (rank, text))
    # A rank killed at the deadline closes its connections: what others say then is its echo.
    if "hung" not in found:
        found = told | found
    for kind in _WORST:
        if kind in found:
            rank, reason = found[kind]
            return kind, f"rank {rank}: {reason}" if reason else f"rank {rank}", rank
    if any(end.killed for end in ends):
        return "hung", f"no answer within {job.deadline_s:g} s", None
    return "ok", "", None


def _death(end: RankEnd) -> str:
    if end.signal is not None:
        try:
            how = f"ended by {signal.Signals(end.signal).name}"
        except ValueError:
            how = f"ended by signal {end.signal}"
    else:
        how = f"left without a result, exit code {end.exit_code}"
    return how + (f": {end.log_tail}" if end.log_tail else "")


def _cases(cases: Sequence[Case], results: Sequence[RankResult]) -> tuple[CaseTimes, ...]:
    merged = []
    for case in cases:
        shares = [next((c for c in r.cases if c.case == case), None) for r in results]
        have = [share for share in shares if share is not None]
        if len(have) < len(results):
            if have:
                merged.append(
                    CaseTimes(case=case, times_us=[], error="not every rank finished this case")
                )
            continue
        enqueue = [share.enqueue_us for share in have if share.enqueue_us is not None]
        merged.append(
            CaseTimes(
                case=case,
                times_us=[share.times_us for share in have],
                enqueue_us=enqueue if len(enqueue) == len(have) else None,
                wrong=[share.wrong for share in have],
                chain=have[0].chain,
                error=next((share.error for share in have if share.error), None),
            )
        )
    return tuple(merged)


def _step(results: Sequence[RankResult]) -> StepTimes | None:
    if not all(result.step_total_us for result in results):
        return None
    nocomm = [result.step_nocomm_us for result in results]
    return StepTimes(
        total_us=[result.step_total_us for result in results],
        nocomm_us=nocomm if all(nocomm) else [],
        wrong=[result.step_wrong for result in results],
    )


def _functions(results: Sequence[RankResult]) -> dict[str, str]:
    merged: dict[str, str] = {}
    for result in results:
        for name, said in result.functions.items():
            if merged.get(name, "ok") == "ok":
                merged[name] = said
    return merged
