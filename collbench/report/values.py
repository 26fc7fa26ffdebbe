"""From raw launches to the figures a report shows: medians over launches with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from collbench import stats
from collbench.collectives import COLLECTIVES
from collbench.job import Case, CaseTimes, Run
from collbench.report.story import Arm

RESAMPLES = 2000


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


def reduction(backend: str, mode: str) -> str:
    """Return how windows are reduced across ranks: the slowest for entry and MPI, else median."""
    return "max" if mode == "entry" or backend == "mpi" else "median"


def value_of(launches: Sequence[float]) -> Value:
    """Return the median of launches and its bootstrap interval (percentile, launches resampled).

    With one launch the interval is the value itself and `Value.has_interval` is False.

    >>> value_of([2.0]).has_interval, value_of([1.0, 2.0, 9.0]).mid
    (False, 2.0)
    """
    if len(launches) < 2:
        return Value(mid=launches[0], low=launches[0], high=launches[0], launches=1)
    import numpy as np

    values = np.asarray(launches, dtype=np.float64)
    picks = np.random.default_rng(0).integers(0, len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.median(values[picks], axis=1), [0.025, 0.975])
    return Value(mid=median(launches), low=float(low), high=float(high), launches=len(launches))


def ratio_of(candidate: Sequence[float], default: Sequence[float]) -> Value:
    """Return the ratio of two medians over launches, with its bootstrap interval."""
    mid = median(candidate) / median(default)
    launches = min(len(candidate), len(default))
    if launches < 2:
        return Value(mid=mid, low=mid, high=mid, launches=launches)
    import numpy as np

    rng = np.random.default_rng(0)
    medians = []
    for arm in (candidate, default):
        values = np.asarray(arm, dtype=np.float64)
        picks = rng.integers(0, len(values), size=(RESAMPLES, len(values)))
        medians.append(np.median(values[picks], axis=1))
    low, high = np.quantile(medians[0] / medians[1], [0.025, 0.975])
    return Value(mid=mid, low=float(low), high=float(high), launches=launches)


def timed(run: Run) -> list[CaseTimes]:
    """Return the cases of a launch that have times."""
    if run.outcome != "ok":
        return []
    return [case for case in run.cases if case.error is None and any(case.times_us)]


def case_launches(arm: Arm, backend: str) -> dict[Case, list[float]]:
    """Return, per case, one value a launch in microseconds a call."""
    found: dict[Case, list[float]] = {}
    for run in arm.runs:
        for times in timed(run):
            how = reduction(backend, times.case.mode)
            found.setdefault(times.case, []).append(stats.launch_value(times.times_us, how))
    return found


def busbw_gbs(case: Case, time_us: float, nranks: int) -> float | None:
    """Return the bus bandwidth of one call in GB/s (10**9 bytes/s); None for one rank."""
    row = COLLECTIVES.get(case.collective)
    if row is None or nranks < 2 or time_us <= 0:
        return None
    return case.size_bytes / time_us / 1e3 * row.busbw_factor(nranks)


@dataclass(frozen=True, kw_only=True)
class StepValue:
    """The step over launches: its whole, and its time without communication where timed."""

    total: Value
    nocomm: Value | None
    exposed: Value | None
    totals: list[float]


def step_value(arm: Arm, backend: str) -> StepValue | None:
    """Return the step of an arm, or None where no launch timed one."""
    how = reduction(backend, "graph")
    totals, nocomms = [], []
    for run in arm.runs:
        if run.outcome != "ok" or run.step is None or not any(run.step.total_us):
            continue
        totals.append(stats.launch_value(run.step.total_us, how))
        if any(run.step.nocomm_us):
            nocomms.append(stats.launch_value(run.step.nocomm_us, how))
    if not totals:
        return None
    both = len(nocomms) == len(totals)
    return StepValue(
        total=value_of(totals),
        nocomm=value_of(nocomms) if both else None,
        exposed=value_of([t - n for t, n in zip(totals, nocomms, strict=True)]) if both else None,
        totals=totals,
    )
