"""What `collbench check` decides: profile and default measured again, against the record.

Old and new launches of default and profile are a 2x2. Beside each other in time, profile / default
says whether the settings still help; now / then says what the machine and its libraries did
without them. On hosts that jump between speed regimes only the first can be read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from collbench.confirm.arms import Blocks, Setup
from collbench.confirm.confirmation import Confirmation, summarise
from collbench.confirm.gate import Decision
from collbench.confirm.statistics import lower_bound, spread, upper_bound

Verdict = Literal["as_recorded", "regressed", "no_longer_helps", "not_comparable"]
PAIRS = 8
CHANGE = 0.03
"""A change of a time or a ratio below this fraction is never called a regression."""
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """What a profile's record says."""

    settings: dict[str, str]
    ratio: float
    default_us: float
    winner_us: float
    sd: float
    """Launch-to-launch sd of the log objective."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """The verdict and the 2x2."""

    verdict: Verdict
    reasons: tuple[str, ...]
    now: Confirmation
    """Default and profile as measured now; its ``ratio`` and ``interval`` are the document's."""
    recorded: Recorded
    default_change: float
    """Default now / default then: what the machine or its libraries did without the profile."""
    profile_change: float
    """Profile now / profile then."""


def check(
    setup: Setup,
    recorded: Recorded,
    *,
    beside: bool,
    changed: Sequence[str] = (),
    pairs: int = PAIRS,
) -> CheckResult:
    """Measure profile and default again, interleaved, and compare with the record.

    ``no_longer_helps``: the profile is not surely faster than the default any more.
    ``regressed``: it helps, but less than recorded, or (where times can be compared over time) it
    takes longer than recorded, in both cases beyond 3 % and beyond noise. ``not_comparable``:
    something that binds a profile has changed; it is measured all the same, for the 2x2.

    Args:
        setup: The lab and how its launches are read.
        recorded: The record.
        beside: Times of different days say nothing here (CPU hosts); only ratios do.
        changed: What differs from the record's fingerprint, in words; empty: the same machine.
        pairs: Interleaved pairs; twice as many where these do not decide.

    Raises:
        CollbenchError: the default cannot be measured.
    """
    blocks = Blocks(setup=setup, arms={"candidate": recorded.settings}, purpose="confirm")
    while len(blocks.base) < 2 * pairs:
        blocks.block()
        failed = blocks.failures.get("candidate", ())
        if len(failed) > 1 or (len(blocks.base) >= pairs and not _open(blocks, recorded)):
            break
    now = summarise(blocks, Decision(adopt=False, final=True, reasons=()), None)
    verdict, reasons = _verdict(blocks, now, recorded, beside=beside)
    if changed:
        reasons = (
            "not the machine or the libraries of the record: " + "; ".join(changed),
            *reasons,
        )
        verdict = "not_comparable"
    return CheckResult(
        verdict=verdict,
        reasons=reasons,
        now=now,
        recorded=recorded,
        default_change=now.default_us / recorded.default_us,
        profile_change=now.winner_us / recorded.winner_us,
    )


def _open(blocks: Blocks, recorded: Recorded) -> bool:
    """Return whether more pairs could tell a gain from none."""
    logs = blocks.logs("candidate")
    return bool(recorded.settings) and upper_bound(logs, LEVEL) >= 0 > lower_bound(logs, LEVEL)


def _verdict(
    blocks: Blocks, now: Confirmation, recorded: Recorded, *, beside: bool
) -> tuple[Verdict, tuple[str, ...]]:
    failed = blocks.failures.get("candidate", [])
    if failed:
        return "regressed", (f"with the profile a launch {failed[0].outcome}: {failed[0].reason}",)
    logs = blocks.logs("candidate")
    both = f"profile / default is {now.ratio:.3f} now, {recorded.ratio:.3f} in the record"
    if recorded.settings and upper_bound(logs, LEVEL) >= 0:
        return "no_longer_helps", (both,)
    error = 1.25 * max(math.sqrt(2) * recorded.sd, spread(logs)) / math.sqrt(len(logs))
    lost = math.log(now.ratio / recorded.ratio)
    if lost > max(CHANGE, 3 * error):
        return "regressed", (both,)
    slower = math.log(now.winner_us / recorded.winner_us)
    if not beside and slower > max(CHANGE, 4 * recorded.sd):
        default = (now.default_us / recorded.default_us - 1) * 100
        return "regressed", (
            f"the profile takes {math.expm1(slower) * 100:.1f} % longer than recorded, and the "
            f"default {default:+.1f} %: not the settings, but what lies under them",
            both,
        )
    return "as_recorded", (both,)
