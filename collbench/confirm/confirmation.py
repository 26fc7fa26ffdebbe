"""The confirmation: one candidate against the default, on fresh interleaved launches only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from collbench.confirm.arms import Blocks, Setup, default_launch
from collbench.confirm.gate import Decision, GuardResult, Limits, decide
from collbench.confirm.objective import Sample
from collbench.confirm.statistics import interval, median_log
from collbench.job import Run, Settings

LOOKS = (1.0, 1.15, 1.45, 1.9, 2.4)
"""Looks at the pairs, as multiples of the floor; then at the most. With 14 pairs as the floor an
answer at the gate's level comes at 14 where no pair is reversed, at 17 with one, at 21 with two."""
EXEC_LAUNCHES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Confirmation:
    """What the confirming launches say."""

    adopt: bool
    reasons: tuple[str, ...]
    """Why not, in plain words; or, where adopted, what stayed unsure."""
    ratio: float
    """Median over pairs of candidate / default; nan where no pair was completed."""
    interval: tuple[float, float]
    """95 %, bootstrap over pairs."""
    default_us: float
    winner_us: float
    default_exposed_us: float | None = None
    winner_exposed_us: float | None = None
    pairs: int = 0
    pair_values_us: tuple[tuple[float, float], ...] = ()
    """(default, candidate) of every pair, in the order measured."""
    guards: tuple[GuardResult, ...] = ()
    blocked: bool = False
    """Turned away for a guarded case or a failed launch, not for want of a gain."""
    other_ratio: float | None = None
    """The other objective's ratio, where one end of a front is confirmed; it is not guarded."""
    exec_ratio: float | None = None
    """Ratio of the launches started by exec from the drafted env file."""
    failures: tuple[Run, ...] = field(default=())


def confirm(
    setup: Setup,
    candidate: Settings,
    limits: Limits,
    *,
    pairs: int,
    floor: int,
    needed: int = 0,
    reference: Settings | None = None,
    draft: Callable[[Settings], Path] | None = None,
) -> Confirmation:
    """Confirm one candidate.

    Args:
        setup: The lab and how its launches are read.
        candidate: Settings to confirm.
        limits: The gate's limits.
        pairs: Most pairs; the answer may be clear earlier, either way.
        floor: Fewest pairs before the first look.
        needed: Pairs that show the wanted gain at this noise: before them a candidate may be
            adopted, but is not given up for want of a gain.
        reference: What it is compared with; the default if None.
        draft: Writes the env file of given settings; two launches an arm then start by exec
            from it. None: the lab has no such launches (replay).

    Raises:
        CollbenchError: the reference cannot be measured, or no further launch can succeed.
    """
    blocks = Blocks(
        setup=setup, arms={"candidate": candidate}, reference=reference or {}, purpose="confirm"
    )
    looks = sorted({min(pairs, math.ceil(floor * look)) for look in LOOKS} | {pairs})
    decision = Decision(adopt=False, final=False, reasons=("no pair was completed",))
    while not decision.final:
        blocks.block()
        count = len(blocks.base)
        failed = blocks.failures.get("candidate", [])
        if failed or count in looks or count >= pairs:
            decision = decide(
                blocks.logs("candidate"),
                guard_logs(blocks),
                failed,
                limits,
                last=count >= pairs,
                patient=count < needed,
            )
    exec_ratio = None
    if decision.adopt and draft is not None:
        exec_ratio, fault = _by_exec(setup, candidate, reference or {}, draft, blocks, limits)
        if fault:
            decision = replace(decision, adopt=False, reasons=(fault,), blocked=True)
    return summarise(blocks, decision, exec_ratio)


def guard_logs(blocks: Blocks) -> Mapping[str, list[float]]:
    """Return the log ratios of every guarded case and of the windows' 95th percentile."""
    cases = {case for found in blocks.base for case in found.cases}
    logs = {case: blocks.logs("candidate", case) for case in cases}
    logs["p95"] = blocks.logs("candidate", "p95")
    return {case: values for case, values in logs.items() if values}


def _by_exec(
    setup: Setup,
    candidate: Settings,
    reference: Settings,
    draft: Callable[[Settings], Path],
    blocks: Blocks,
    limits: Limits,
) -> tuple[float | None, str]:
    """Launch both arms from the drafted file, the way a server starts; return ratio and fault."""
    logs = []
    for _ in range(EXEC_LAUNCHES):
        base = default_launch(setup, "confirm", reference, env_file=draft(reference))
        done = setup.launch(
            candidate, "confirm", arm="exec", env_file=draft(candidate), reference_us=base.value_us
        )
        if done.sample is None:
            return None, (
                f"started from the drafted env file it {done.run.outcome}: {done.run.reason}"
            )
        logs.append(math.log(done.sample.value_us / base.value_us))
    # The better of two launches: an outlier is slower, never faster.
    best, confirmed = min(logs), median_log(blocks.logs("candidate"))
    allowed = max(0.02, 4 * limits.sd, -confirmed / 2)
    fault = ""
    if best > confirmed + allowed:
        fault = (
            f"started from the drafted env file the ratio is {math.exp(best):.3f} instead of "
            f"{math.exp(confirmed):.3f}: the settings do not arrive that way"
        )
    return math.exp(min(logs)), fault


def summarise(blocks: Blocks, decision: Decision, exec_ratio: float | None) -> Confirmation:
    """Return what the blocks of an arm named ``candidate`` say."""
    logs = blocks.logs("candidate")
    pairs = tuple(
        (base.value_us, found.value_us)
        for base, found in zip(blocks.base, blocks.samples["candidate"], strict=True)
        if found is not None
    )
    candidate = [found for found in blocks.samples["candidate"] if found is not None]
    others = blocks.logs("candidate", "other")
    return Confirmation(
        adopt=decision.adopt,
        reasons=decision.reasons,
        ratio=math.exp(median_log(logs)) if logs else math.nan,
        interval=interval(logs) if logs else (math.nan, math.nan),
        default_us=float(median(s.value_us for s in blocks.base)),
        winner_us=float(median(s.value_us for s in candidate)) if candidate else math.nan,
        default_exposed_us=_exposed(blocks.base),
        winner_exposed_us=_exposed(candidate),
        pairs=len(pairs),
        pair_values_us=pairs,
        guards=decision.guards,
        blocked=decision.blocked,
        other_ratio=math.exp(median_log(others)) if others else None,
        exec_ratio=exec_ratio,
        failures=tuple(blocks.failures.get("candidate", ())),
    )


def _exposed(samples: list[Sample]) -> float | None:
    known = [s.exposed_us for s in samples if s.exposed_us is not None]
    return float(median(known)) if known else None
