"""The gate: a candidate is adopted only if every one of these says so; else keep the default.

Pure: it sees log ratios and failures, launches nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from collbench.confirm.statistics import faster_p, lower_bound, median_log
from collbench.job import Run

LEVEL = 0.005
"""One-sided level that a decision has at least: a 99.5 % bound excludes 1."""
SPENT_EARLY = 0.0003
SPENT_LAST = 0.0005
"""Levels of a look before the last and of the last. The pairs are looked at several times, with
two tests, and the candidate is the best of several: each spends level. Together they stay far
inside `LEVEL`, so that of 1000 studies without any gain fewer than five adopt (measured by
benchmarks/search_replay)."""
GUARD_LEVEL = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What the gate asks for."""

    min_gain: float = 0.02
    """Fraction; the gate asks for max(this, half the noise)."""
    slower: float = 0.03
    """A guarded case may be slower by less than this fraction."""
    sd: float = 0.0
    """Launch-to-launch sd of the log objective."""

    @property
    def gain(self) -> float:
        """Return the least gain that is adopted, as a fraction below 1.

        Capped: on a machine so busy that the noise floor passes 180 %, no gain is ever sure, but
        the gate must still be able to say so.
        """
        return max(self.min_gain, min(0.5 * self.sd, 0.9))


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardResult:
    """One guarded case: candidate against default on the confirming pairs."""

    case: str
    ratio: float
    verdict: str
    """``ok``, ``slower``, or ``unsure`` (slower by the estimate, but not beyond the noise)."""
    pairs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What the gate said."""

    adopt: bool
    final: bool
    """False: more pairs can still decide."""
    reasons: tuple[str, ...]
    """In plain words; for ``adopt`` empty or what stayed unsure."""
    guards: tuple[GuardResult, ...] = field(default=())
    blocked: bool = False
    """Turned away for a guarded case or a failed launch, not for want of a gain."""


def decide(
    logs: Sequence[float],
    guard_logs: Mapping[str, Sequence[float]],
    failures: Sequence[Run],
    limits: Limits,
    *,
    last: bool,
    patient: bool = False,
) -> Decision:
    """Decide on the pairs so far.

    Args:
        logs: Log ratios of the objective, candidate / default, one a pair.
        guard_logs: Case key (and ``p95``) -> log ratios.
        failures: Candidate launches that did not end well.
        limits: The limits.
        last: No further pairs are to come.
        patient: Too few pairs yet to give up for want of a gain.
    """
    if failures:
        run = failures[0]
        why = f"it {run.outcome} on a confirming launch" + (f": {run.reason}" if run.reason else "")
        return Decision(adopt=False, final=True, reasons=(why,), blocked=True)
    guards = tuple(guard(case, values, limits) for case, values in sorted(guard_logs.items()))
    slower = [g for g in guards if g.verdict == "slower"]
    if slower and (last or _surely_slower(slower, guard_logs, limits)):
        reasons = tuple(
            f"{g.case} is {(g.ratio - 1) * 100:.1f} % slower (at most "
            f"{limits.slower * 100:.0f} % is allowed)"
            for g in slower
        )
        return Decision(adopt=False, final=True, reasons=reasons, guards=guards, blocked=True)
    needed = math.log1p(-limits.gain)
    centre = median_log(logs) if len(logs) else 0.0
    sure = faster_p(logs) <= (SPENT_LAST if last else SPENT_EARLY)
    if not slower and centre <= needed and sure:
        unsure = tuple(
            f"{g.case}: ratio {g.ratio:.3f}, not beyond the noise"
            for g in guards
            if g.verdict == "unsure"
        )
        return Decision(adopt=True, final=True, reasons=unsure, guards=guards)
    hopeless = not patient and len(logs) > 0 and lower_bound(logs, 0.05) > needed
    if not (last or hopeless):
        return Decision(adopt=False, final=False, reasons=(), guards=guards)
    gain = (1 - math.exp(centre)) * 100
    if hopeless or centre > needed:
        why = (
            f"the confirmed gain is {gain:.1f} %, and at least {limits.gain * 100:.1f} % is needed"
        )
    else:
        why = f"a gain of {gain:.1f} % was seen, but it is not sure at this noise"
    return Decision(adopt=False, final=True, reasons=(why,), guards=guards)


def guard(case: str, logs: Sequence[float], limits: Limits) -> GuardResult:
    """Judge one guarded case."""
    centre = median_log(logs) if len(logs) else 0.0
    over = centre > math.log1p(limits.slower)
    sure = over and lower_bound(logs, GUARD_LEVEL) > 0
    verdict = "slower" if sure else "unsure" if over else "ok"
    return GuardResult(case=case, ratio=math.exp(centre), verdict=verdict, pairs=len(logs))


def _surely_slower(
    slower: Sequence[GuardResult], logs: Mapping[str, Sequence[float]], limits: Limits
) -> bool:
    """Return whether some case is beyond the limit by its whole bound: no need for more pairs."""
    limit = math.log1p(limits.slower)
    return any(lower_bound(logs[g.case], GUARD_LEVEL / 10) > limit for g in slower)
