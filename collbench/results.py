"""From the raw times of a run record to figures per case, derived anew at every reading.

The launch is the unit: percentiles are over all windows, intervals and tests over launches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from collbench import stats
from collbench.collectives import COLLECTIVES, algbw, busbw
from collbench.job import Case, CaseTimes
from collbench.record import RunRecord

HOST_BOUND = 0.8
"""Share of the time of an eager call above which its enqueue on the host was what was timed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseResult:
    """One case over all launches; times in microseconds a call, bandwidths in 10**9 bytes/s."""

    case: Case
    nranks: int
    values_us: tuple[float, ...]
    """One value a launch, in the order of the record."""
    launch_index: tuple[int, ...]
    """Which launch of the record each value is from."""
    p50_us: float
    """Median over launches of the launches' medians."""
    p95_us: float
    p99_us: float | None
    """None under 200 windows."""
    ci_us: tuple[float, float] | None
    """95 % interval of the median over launches; None with one launch."""
    skew_us: float
    """Median over launches of the slowest minus the fastest rank."""
    wrong: int
    """Wrong elements over all ranks and launches, before and after the timing."""
    enqueue_us: float | None
    algbw_gbs: float | None
    busbw_gbs: float | None

    @property
    def launches(self) -> int:
        """Launches that timed it."""
        return len(self.values_us)

    @property
    def host_bound(self) -> bool:
        """Whether the launch of the call was timed rather than its transfer."""
        return self.enqueue_us is not None and self.enqueue_us >= HOST_BOUND * self.p50_us


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """The step over all launches, microseconds."""

    name: str
    values_us: tuple[float, ...]
    launch_index: tuple[int, ...]
    total_us: float
    ci_us: tuple[float, float] | None
    nocomm_us: float | None
    """The same without its collectives; None where that is not timed."""
    exposed_us: float | None
    """Median over launches of step minus the same without collectives."""
    exposed_values_us: tuple[float, ...]
    wrong: int

    @property
    def launches(self) -> int:
        """Launches that timed it."""
        return len(self.values_us)


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Everything a record says, as figures."""

    cases: tuple[CaseResult, ...]
    step: StepResult | None
    failed: tuple[tuple[str, str], ...] = field(default_factory=tuple)
    """(case key, ``step`` or ``launch N``) and why there are no times from it."""


def results(record: RunRecord) -> Results:
    """Return the figures of a record.

    A launch that died or hung is named, and gives the cases that every rank had finished and
    checked before; it gives no step. A case whose data were wrong gives its times and its count of
    wrong elements, and is not to be trusted.
    """
    failed = [
        (f"launch {i}", f"{run.outcome}: {run.reason}" if run.reason else run.outcome)
        for i, run in enumerate(record.launches)
        if run.outcome not in ("ok", "wrong")
    ]
    found: dict[Case, list[tuple[int, CaseTimes]]] = {}
    for i, run in enumerate(record.launches):
        for times in run.cases:
            if times.error is None and times.times_us and all(times.times_us):
                found.setdefault(times.case, []).append((i, times))
            elif times.error is not None:
                failed.append((times.case.key, times.error))
    order = {case: i for i, case in enumerate(record.job.cases)}
    cases = sorted(found, key=lambda case: order.get(case, len(order)))
    return Results(
        cases=tuple(_case(record, case, found[case]) for case in cases),
        step=_step(record),
        failed=tuple(failed),
    )


def _case(record: RunRecord, case: Case, timed: list[tuple[int, CaseTimes]]) -> CaseResult:
    how = stats.reduction(record.backend, case.mode)
    values = tuple(stats.launch_value(times.times_us, how) for _, times in timed)
    windows = [w for _, times in timed for w in stats.per_window(times.times_us, how)]
    enqueues = [e for _, times in timed for e in times.enqueue_us or ()]
    p50 = float(median(values))
    row = COLLECTIVES.get(case.collective)
    known = row is not None and p50 > 0
    return CaseResult(
        case=case,
        nranks=record.nranks,
        values_us=values,
        launch_index=tuple(i for i, _ in timed),
        p50_us=p50,
        p95_us=stats.percentile(windows, 95),
        p99_us=stats.p99(windows),
        ci_us=stats.median_interval(values),
        skew_us=float(median(stats.skew(times.times_us) for _, times in timed)),
        wrong=sum(sum(times.wrong) for _, times in timed),
        enqueue_us=float(median(enqueues)) if enqueues else None,
        algbw_gbs=algbw(case.size_bytes, p50) if known else None,
        busbw_gbs=busbw(row, case.size_bytes, p50, record.nranks) if row and known else None,
    )


def _step(record: RunRecord) -> StepResult | None:
    how = stats.reduction(record.backend)
    timed = [
        (i, run.step)
        for i, run in enumerate(record.launches)
        if run.step is not None and run.step.total_us and all(run.step.total_us)
    ]
    if not timed:
        return None
    values = tuple(stats.launch_value(step.total_us, how) for _, step in timed)
    bare = [
        stats.launch_value(step.nocomm_us, how)
        for _, step in timed
        if step.nocomm_us and all(step.nocomm_us)
    ]
    whole = len(bare) == len(values)
    exposed = tuple(t - n for t, n in zip(values, bare, strict=True)) if whole else ()
    return StepResult(
        name=record.job.step.name if record.job.step else "",
        values_us=values,
        launch_index=tuple(i for i, _ in timed),
        total_us=float(median(values)),
        ci_us=stats.median_interval(values),
        nocomm_us=float(median(bare)) if whole else None,
        exposed_us=float(median(exposed)) if whole else None,
        exposed_values_us=exposed,
        wrong=sum(sum(step.wrong) for _, step in timed),
    )


def curves(found: Results, mode: str = "graph") -> dict[str, list[tuple[int, float]]]:
    """Return, by collective, the measured (size_bytes, p50_us) of one mode, ascending in size.

    Where a size was timed in several dtypes the first one counts: the same bytes take the same
    time but for the arithmetic. Cases with wrong data are left out.
    """
    out: dict[str, dict[int, float]] = {}
    for result in found.cases:
        if result.case.mode == mode and not result.wrong:
            sizes = out.setdefault(result.case.collective, {})
            sizes.setdefault(result.case.size_bytes, result.p50_us)
    return {name: sorted(sizes.items()) for name, sizes in out.items()}
