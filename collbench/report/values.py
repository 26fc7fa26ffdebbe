"""From raw launches to the figures a report shows: medians over launches with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from collbench import stats
from collbench.collectives import COLLECTIVES, busbw
from collbench.job import Case, CaseTimes, Run
from collbench.report.story import Arm
from collbench.results import HOST_BOUND


@dataclass(frozen=True, kw_only=True)
class Value:
    """A median over launches, microseconds unless said, with its 95 % interval."""

    mid: float
    low: float
    high: float
    launches: int

    @property
    def has_interval(self) -> bool:
        """Whether there were launches enough to speak of an interval."""
        return self.launches >= 2


def value_of(launches: Sequence[float]) -> Value:
    """Return the median of launches and its bootstrap interval.

    With one launch the interval is the value itself and `Value.has_interval` is False.

    >>> value_of([2.0]).has_interval, value_of([1.0, 2.0, 9.0]).mid
    (False, 2.0)
    """
    mid = float(median(launches))
    low, high = stats.median_interval(launches) or (mid, mid)
    return Value(mid=mid, low=low, high=high, launches=len(launches))


def ratio_of(
    candidate: Sequence[float], default: Sequence[float], *, paired: bool = False
) -> Value:
    """Return the ratio to the default with its bootstrap interval.

    Args:
        candidate: One value a launch.
        default: One value a launch.
        paired: The launches alternated: the median of the pairs' ratios. Else the ratio of the
            two medians, as also where one arm lost a launch.
    """
    paired = paired and len(candidate) == len(default)
    mid = stats.ratio_of_medians(default, candidate, paired=paired)
    low, high = stats.ratio_interval(default, candidate, paired=paired) or (mid, mid)
    return Value(mid=mid, low=low, high=high, launches=min(len(candidate), len(default)))


def is_time(value: float | None) -> bool:
    """Return whether a number can be a time: clocks give neither zero nor less nor days."""
    return value is not None and 0 < value < 1e11


def timed(run: Run) -> list[CaseTimes]:
    """Return the cases of a launch that have times."""
    if run.outcome != "ok":
        return []
    return [case for case in run.cases if case.error is None and any(case.times_us)]


def _launch(times_us: list[list[float]], how: str) -> float | None:
    """Return the value of one launch; None where no window is shared or it is no time."""
    if not times_us or not all(times_us):
        return None
    value = stats.launch_value(times_us, how)
    return value if is_time(value) else None


def case_launches(arm: Arm, backend: str) -> dict[Case, list[float]]:
    """Return, per case, one value a launch in microseconds a call."""
    found: dict[Case, list[float]] = {}
    for run in arm.runs:
        for times in timed(run):
            value = _launch(times.times_us, stats.reduction(backend, times.case.mode))
            if value is not None:
                found.setdefault(times.case, []).append(value)
    return found


def host_bound(arm: Arm, case: Case, time_us: float) -> bool:
    """Return whether the launch of a call was timed rather than its transfer."""
    enqueues = [
        enqueue
        for run in arm.runs
        for times in timed(run)
        if times.case == case
        for enqueue in times.enqueue_us or ()
    ]
    return bool(enqueues) and median(enqueues) >= HOST_BOUND * time_us


def busbw_gbs(case: Case, time_us: float, nranks: int) -> float | None:
    """Return the bus bandwidth of one call in GB/s (10**9 bytes/s); None for one rank."""
    if case.collective not in COLLECTIVES or nranks < 2 or time_us <= 0:
        return None
    return busbw(COLLECTIVES[case.collective], case.size_bytes, time_us, nranks)


@dataclass(frozen=True, kw_only=True)
class StepValue:
    """The step over launches: its whole, and its time without communication where timed."""

    total: Value
    nocomm: Value | None
    exposed: Value | None
    totals: list[float]


def step_value(arm: Arm, backend: str) -> StepValue | None:
    """Return the step of an arm, or None where no launch timed one."""
    how = stats.reduction(backend)
    totals, nocomms = [], []
    for run in arm.runs:
        if run.outcome != "ok" or run.step is None or not any(run.step.total_us):
            continue
        total = _launch(run.step.total_us, how)
        if total is None:
            continue
        totals.append(total)
        bare = _launch(run.step.nocomm_us, how)
        if bare is not None:
            nocomms.append(bare)
    if not totals:
        return None
    both = len(nocomms) == len(totals)
    return StepValue(
        total=value_of(totals),
        nocomm=value_of(nocomms) if both else None,
        exposed=value_of([t - n for t, n in zip(totals, nocomms, strict=True)]) if both else None,
        totals=totals,
    )
