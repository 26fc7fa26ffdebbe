"""What `collbench check` decides: profile and default measured again, against the record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from collbench.confirm.arms import Blocks, Setup
from collbench.confirm.confirmation import Confirmation, _result, guard_logs
from collbench.confirm.gate import Decision
from collbench.confirm.statistics import lower_bound, spread, upper_bound
from collbench.job import Settings

Verdict = Literal["as_recorded", "regressed", "no_longer_helps", "not_comparable"]
PAIRS = 8
CHANGE = 0.03
"""A change of the profile's time below this fraction is never called a regression."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """The verdict and the 2x2: old and new launches, default and profile."""

    verdict: Verdict
    reasons: tuple[str, ...]
    now: Confirmation | None
    recorded_ratio: float | None
    recorded_default_us: float | None
    recorded_winner_us: float | None
    stack_ratio: float | None = None
    """Default now / default then: what the machine or the stack did without the profile."""


def check(
    setup: Setup,
    settings: Settings,
    *,
    recorded_ratio: float,
    recorded_default_us: float,
    recorded_winner_us: float,
    recorded_sd: float,
    changed: Sequence[str] = (),
    pairs: int = PAIRS,
) -> CheckResult:
    """Measure profile and default again, interleaved, and compare with the record.

    ``not_comparable``: something that binds a profile changed (`changed`, from the fingerprints);
    it is still measured, so that the 2x2 can be shown. ``no_longer_helps``: the profile is not
    faster than the default any more. ``regressed``: it helps, but the profile's launches are
    slower than recorded beyond noise and 3 %. Otherwise ``as_recorded``.

    Args:
        setup: The lab and how its launches are read.
        settings: The profile's settings.
        recorded_ratio: Confirmed ratio of the record.
        recorded_default_us: Default of the record.
        recorded_winner_us: Profile of the record.
        recorded_sd: Noise of the record, sd of log launches.
        changed: What differs from the record's fingerprint, in words; empty: the same machine.
        pairs: Interleaved pairs.
    """
    blocks = Blocks(setup=setup, arms={"candidate": settings}, purpose="confirm")
    for _ in range(pairs):
        blocks.block()
        if len(blocks.failures.get("candidate", ())) > 1:
            break
    guard_logs(blocks)
    now = _result(blocks, Decision(adopt=False, final=True, reasons=()), None)
    stack = now.default_us / recorded_default_us
    verdict, reasons = _verdict(
        blocks, now, settings, recorded_ratio, recorded_winner_us, recorded_sd
    )
    if changed:
        verdict, reasons = (
            "not_comparable",
            (
                "the machine or its libraries are not those of the record: " + "; ".join(changed),
                *reasons,
            ),
        )
    return CheckResult(
        verdict=verdict,
        reasons=reasons,
        now=now,
        recorded_ratio=recorded_ratio,
        recorded_default_us=recorded_default_us,
        recorded_winner_us=recorded_winner_us,
        stack_ratio=stack,
    )


def _verdict(
    blocks: Blocks,
    now: Confirmation,
    settings: Settings,
    recorded_ratio: float,
    recorded_winner_us: float,
    recorded_sd: float,
) -> tuple[Verdict, tuple[str, ...]]:
    logs = blocks.logs("candidate")
    failed = blocks.failures.get("candidate", [])
    if failed or not logs:
        run = failed[0]
        return "regressed", (f"with the profile a launch {run.outcome}: {run.reason}",)
    sd = max(recorded_sd, spread(logs) / math.sqrt(2))
    gain = (1 - now.ratio) * 100
    if settings and upper_bound(logs, 0.05) >= 0:
        return "no_longer_helps", (
            f"profile / default is {now.ratio:.3f} now, {recorded_ratio:.3f} in the record",
        )
    shift = math.log(now.ratio / recorded_ratio)
    limit = max(CHANGE, 3 * sd * math.sqrt(2 / max(len(logs), 1)))
    if shift > limit and lower_bound(logs, 0.05) > math.log(recorded_ratio):
        return "regressed", (
            f"the gain is {gain:.1f} % now, {(1 - recorded_ratio) * 100:.1f} % in the record",
        )
    slower = math.log(now.winner_us / recorded_winner_us)
    if slower > max(CHANGE, 4 * sd):
        return "regressed", (
            f"the profile's time rose by {math.expm1(slower) * 100:.1f} % since the record, and "
            f"the default's with it: not the settings, but what lies under them",
        )
    return "as_recorded", (f"profile / default is {now.ratio:.3f}, {gain:.1f} % gained",)
