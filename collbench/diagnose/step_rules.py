"""Before and after: what changed, by how much, and whether communication accounts for it.

Differences are judged against the scatter of the samples: the standard error of a median is
1.25 times the robust standard deviation over the root of n; repeats of one setting bound it from
below, since samples of one launch say little of the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, stdev
from typing import Any

from collbench.diagnose.machine_rules import misbinding
from collbench.findings import Finding
from collbench.readers import Given, Reading
from collbench.readers.e2e import PAIR, captured, claim, predicted_ms
from collbench.readers.steps import StepFile

SIGMAS = 3.0
"""A difference of medians counts from so many standard errors on."""
VISIBLE_SHARE = 0.05
"""A change of this share of the step has to be visible, or the scatter is too wide."""
SMALLEST_SHARE = 0.01
"""A smaller change of the step is none, however quiet the samples are."""
ACCOUNTS_SHARE = 0.6
"""Communication accounts for a change if it explains at least this share of it."""
SKEW_SHARE = 0.3
"""Waiting for a late rank explains a change from this share of it on."""
FEWEST_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class Change:
    """A difference of medians and what it is judged against."""

    before: float
    after: float
    error: float
    """Standard error of the difference."""
    enough: bool

    @property
    def delta(self) -> float:
        """After minus before."""
        return self.after - self.before

    @property
    def significant(self) -> bool:
        """Whether the difference is more than scatter, and more than nothing."""
        smallest = SMALLEST_SHARE * abs(self.before)
        return self.enough and abs(self.delta) > max(SIGMAS * self.error, smallest)

    @property
    def blind(self) -> bool:
        """Whether a change that matters could hide in the scatter."""
        return not self.enough or 2 * self.error > VISIBLE_SHARE * abs(self.before)


def robust_sd(values: Sequence[float]) -> float:
    """Return a standard deviation that single outliers do not move.

    >>> robust_sd([10.0, 10.1, 9.9, 10.0, 50.0]) < 0.2
    True
    """
    middle = median(values)
    spread = 1.4826 * median(abs(value - middle) for value in values)
    if spread == 0 and len(values) > 1:
        # Coarsely rounded samples: half of them are alike.
        return min(stdev(values), max(values) - min(values))
    return spread


def change_of(
    before: Sequence[float],
    after: Sequence[float],
    repeats: Sequence[Sequence[Sequence[float]]] = (),
) -> Change | None:
    """Return the change between two sets of samples, or None where one is empty."""
    if not before or not after:
        return None
    variance = sum((1.2533 * robust_sd(v)) ** 2 / len(v) for v in (before, after))
    for runs in repeats:
        medians = [median(run) for run in runs if run]
        if len(medians) > 1:
            variance = max(variance, stdev(medians) ** 2 / len(medians))
    enough = min(len(before), len(after)) >= FEWEST_SAMPLES
    return Change(median(before), median(after), math.sqrt(variance), enough)


def judge_steps(reading: Reading, given: Given) -> list[Finding]:
    """Return what explains a change of the step, or that there is none."""
    steps: StepFile = reading.signs["steps"]
    before, after = (steps.runs[label] for label in PAIR)
    verify = change_of(before.verify_ms, after.verify_ms, (before.repeats, after.repeats))
    if verify is None:
        return []
    accept = change_of(before.accept_len, after.accept_len)
    found = _claim(steps, verify)
    fewer = accept is not None and accept.significant and accept.delta < 0
    if verify.significant and verify.delta > 0:
        found += _slower(reading, steps, verify)
    elif verify.significant:
        found.append(_faster(verify))
        found += [_acceptance(accept, verify)] if fewer and accept is not None else []
    elif verify.blind:
        found.append(_noisy(verify))
    elif fewer and accept is not None:
        found.append(_acceptance(accept, verify))
    elif not (accept and accept.significant):
        found.append(_no_change(verify))
    wrong = reading.facts.get("misbound_ranks", {}).get("after", [])
    return [*found, misbinding(wrong, {}, None)] if wrong else found


def _noisy(verify: Change) -> Finding:
    return Finding(
        code="noise.too_noisy",
        evidence=f"medians {verify.before:.2f} and {verify.after:.2f} ms, standard error of their "
        f"difference {verify.error:.2f} ms" + ("" if verify.enough else "; too few samples"),
        next="take more samples, in turns (before, after, before, after), on a quiet machine",
    )


def _no_change(verify: Change) -> Finding:
    return Finding(
        code="verify.no_change",
        evidence=f"{verify.delta:+.3f} ms, within {SIGMAS * verify.error:.3f} ms of scatter",
        next="nothing to mend; look for the slow runs elsewhere",
    )


def _faster(verify: Change) -> Finding:
    return Finding(
        code="verify.faster",
        evidence=f"{verify.before:.2f} to {verify.after:.2f} ms",
        next="keep it, and record it as the new baseline",
    )


def _acceptance(accept: Change, verify: Change) -> Finding:
    return Finding(
        code="verify.acceptance_not_comm",
        evidence=f"{accept.before:.2f} to {accept.after:.2f} tokens per step, step time "
        f"{verify.delta:+.3f} ms",
        next="look at draft model, prompts and sampling; a sudden collapse may be wrong data: "
        "`collbench bench` checks it",
    )


def _claim(steps: StepFile, verify: Change) -> list[Finding]:
    """Compare a number from a note with the same settings measured again."""
    noted = claim(steps)
    if noted is None:
        return []
    label, claimed = noted
    measured = verify.after if label == "after" else verify.before
    margin = max(SIGMAS * verify.error, 0.03 * measured)
    if abs(measured - claimed) <= margin:
        return []
    return [
        Finding(
            code="verify.baseline_not_reproduced",
            evidence=f"noted {claimed:g} ms, measured again {measured:.2f} ms",
            next="do not compare with the note: record a baseline with `collbench bench`, with "
            "its settings and machine",
        )
    ]


def _slower(reading: Reading, steps: StepFile, verify: Change) -> list[Finding]:
    predicted = predicted_ms(steps)
    share = None if predicted is None else predicted / verify.delta
    accounts = share is not None and share >= ACCOUNTS_SHARE
    found = _skew(reading, steps, verify, accounts=accounts)
    found += _capture(steps, verify, accounts=accounts)
    if accounts and predicted is not None:
        found.append(_communication(reading, steps, verify, predicted))
    elif not found:
        found += _transfer(steps, verify)
    if not found:
        found.append(_beyond(verify, predicted))
    return found


def _communication(reading: Reading, steps: StepFile, verify: Change, predicted: float) -> Finding:
    protocols = reading.facts.get("protocol", {})
    sizes = {label: steps.get(label, "bytes") for label in PAIR}
    said = f"collectives explain {predicted:+.2f} of {verify.delta:+.2f} ms"
    crossed = protocols and protocols["before"] != protocols["after"]
    if crossed and None not in sizes.values() and sizes["after"] > sizes["before"]:
        return Finding(
            code="verify.payload_crosses_threshold",
            expected_ms=predicted,
            evidence=f"{said}; {sizes['before']} to {sizes['after']} bytes, "
            f"{protocols['before']} to {protocols['after']}",
            next="sweep with the larger batch in the workload, or keep the batch below the change "
            "of protocol",
        )
    return Finding(
        code="verify.comm_regression",
        expected_ms=predicted,
        evidence=said,
        next="`collbench verify PROFILE`, then `collbench check PROFILE`: are the settings live, "
        "and do they still help?",
    )


def _capture(steps: StepFile, verify: Change, *, accounts: bool) -> list[Finding]:
    if [captured(steps, label) for label in PAIR] != [True, False] or accounts:
        return []
    largest, batch = steps.get("after", "largest_graph_batch"), steps.get("after", "batch")
    beyond = largest is not None and batch is not None and batch > largest
    return [
        Finding(
            code="verify.not_captured",
            evidence="steps were replayed from a graph before and are not after"
            + (f": batch {batch}, largest captured {largest}" if beyond else ""),
            next="capture larger batches (--cuda-graph-max-bs, cudagraph_capture_sizes), or limit "
            "the batch",
        )
    ]


def _skew(reading: Reading, steps: StepFile, verify: Change, *, accounts: bool) -> list[Finding]:
    late = reading.facts.get("late_rank")
    if late is None or accounts:
        return []
    waits = {label: steps.get(label, "rank_wait_ms") or [] for label in PAIR}
    moves = {label: steps.get(label, "rank_transfer_ms") or [] for label in PAIR}
    # Of the ranks that wait: with two ranks, the late one would halve the median.
    rest = {label: [w for rank, w in enumerate(waits[label]) if rank != late] for label in PAIR}
    wait = median(rest["after"]) - (median(rest["before"]) if rest["before"] else 0)
    moved = median(moves["after"]) - median(moves["before"]) if all(moves.values()) else 0.0
    if moved > wait or wait < SKEW_SHARE * verify.delta:
        return []
    return [
        Finding(
            code="verify.skew_not_transfer",
            evidence=f"ranks wait {wait:+.2f} ms for rank {late}, transfer {moved:+.2f} ms",
            next=f"look at rank {late}: CPU binding, other processes, clocks (`nvidia-smi -q -d "
            "PERFORMANCE`); NCCL settings do not help",
        )
    ]


def _transfer(steps: StepFile, verify: Change) -> list[Finding]:
    """Find a transfer that takes longer, where the server splits it from waiting."""
    moves: dict[str, Any] = {label: steps.get(label, "rank_transfer_ms") for label in PAIR}
    if not all(moves.values()):
        return []
    moved = median(moves["after"]) - median(moves["before"])
    if moved < ACCOUNTS_SHARE * verify.delta:
        return []
    return [
        Finding(
            code="verify.comm_regression",
            confidence="medium",
            expected_ms=moved,
            evidence=f"transfer takes {moved:+.2f} of {verify.delta:+.2f} ms",
            next="`collbench verify PROFILE`, then `collbench check PROFILE`",
        )
    ]


def _beyond(verify: Change, predicted: float | None) -> Finding:
    said = (
        "no latency of the collectives is known"
        if predicted is None
        else f"the collectives explain {predicted:+.2f} ms of it"
    )
    return Finding(
        code="verify.beyond_comm",
        confidence="low" if predicted is None else "high",
        expected_ms=predicted,
        evidence=f"the step takes {verify.delta:+.2f} ms; {said}",
        next="`collbench diagnose --measure` times the collectives now; then clocks, other "
        "processes, and the server's version and options",
    )
