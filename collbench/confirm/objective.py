"""From a run to the numbers that decide: objective, exposed communication, guarded cases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

from collbench import stats
from collbench.errors import CollbenchError
from collbench.job import CaseTimes, Run

Objective = Literal["decode", "prefill", "pareto"]
OBJECTIVES: tuple[Objective, ...] = ("decode", "prefill", "pareto")
STEP, PREFILL = "step", "prefill"
"""Cases that stand for the two objectives where they are guarded, or weighed against each other."""
PREFILL_BYTES = 1 << 20
"""Cases from this size up are what a prefill spends its communication on."""

_MAX_OVER_RANKS = ("mpi",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """What one launch says, in microseconds; the unit of every statistic here."""

    value_us: float
    """The objective."""
    exposed_us: float | None = None
    """Step minus the same step without its collectives; None where that is not timed."""
    p95_us: float = 0.0
    """95th percentile over the windows of this launch."""
    cases: Mapping[str, float] = field(default_factory=dict)
    """Case key -> value of this launch, for every case timed beside the objective."""
    other_us: float | None = None
    """The other objective, of a launch read for one end of a front: told, not guarded."""


def reduction(backend: str) -> str:
    """Return how windows are reduced across ranks: ``median`` on GPUs, ``max`` under MPI.

    Under MPI a window ends with the slowest rank; on GPUs the ranks of a step leave together.
    """
    return "max" if backend in _MAX_OVER_RANKS else "median"


def objective_of(name: str) -> Objective:
    """Return the objective of a recorded name; the step where a record says nothing of it."""
    return next((one for one in OBJECTIVES if one == name), "decode")


def sample(run: Run, backend: str, objective: Objective = "decode") -> Sample:
    """Return the numbers of one completed launch.

    Args:
        run: A launch with outcome ``ok``.
        backend: Name of the backend; it decides the reduction across ranks.
        objective: ``decode``: the step. ``prefill``: the sum of one call of every timed case from
            1 MiB up. ``pareto``: the geometric mean of both. Under the last two the step and the
            sum are guarded cases as well, under the keys ``step`` and ``prefill``.

    Raises:
        CollbenchError: the run lacks what the objective needs.
    """
    how = reduction(backend)
    cases = {c.case.key: _case_value(c, how) for c in run.cases if c.times_us and not c.error}
    if run.step is None or not run.step.total_us:
        if objective != "prefill":
            raise CollbenchError(
                f"the launch timed no step, which the objective {objective!r} needs",
                fix="give the sweep a [workload], or use --objective prefill",
            )
        return _prefill(cases)
    windows = stats.per_window(run.step.total_us, how)
    total = float(median(windows))
    exposed = (
        total - stats.launch_value(run.step.nocomm_us, how)
        if run.step.nocomm_us and run.step.nocomm_us[0]
        else None
    )
    if objective == "decode":
        return Sample(value_us=total, exposed_us=exposed, p95_us=_p95(windows), cases=cases)
    prefill = _prefill({**cases, STEP: total})
    if objective == "prefill":
        return replace(prefill, exposed_us=exposed)
    return replace(
        prefill,
        value_us=math.sqrt(total * prefill.value_us),
        p95_us=math.sqrt(_p95(windows) * prefill.value_us),
        exposed_us=exposed,
    )


def sample_alone(run: Run, backend: str, side: Literal["decode", "prefill"]) -> Sample:
    """Return the numbers of one completed launch for a server that only decodes, or prefills.

    As `sample`, but only the cases of that side are guarded: those below 1 MiB for decode, the
    others for prefill. The other side's objective is in ``other_us``.

    Raises:
        CollbenchError: the run lacks what one of the objectives needs.
    """
    both = {name: sample(run, backend, name) for name in ("decode", "prefill")}
    own = both.pop(side)
    (other,) = both.values()
    cases = {
        case: us
        for case, us in own.cases.items()
        if case not in (STEP, PREFILL) and (size_of(case) >= PREFILL_BYTES) == (side == "prefill")
    }
    return replace(own, cases=cases, other_us=other.value_us)


def _prefill(cases: dict[str, float]) -> Sample:
    large = {key: value for key, value in cases.items() if size_of(key) >= PREFILL_BYTES}
    if not large:
        raise CollbenchError(
            "the launch timed no case from 1 MiB up, which the objective 'prefill' needs",
            fix="add sizes from 1M up to [guard] in the sweep",
        )
    value = math.fsum(large.values())
    return Sample(value_us=value, p95_us=value, cases={**cases, PREFILL: value})


def size_of(case_key: str) -> int:
    """Return the bytes in a case key; 0 for the step."""
    parts = case_key.split("/")
    return int(parts[1]) if len(parts) > 1 else 0


def _case_value(times: CaseTimes, how: str) -> float:
    return stats.launch_value(times.times_us, how)


def _p95(windows: list[float]) -> float:
    ordered = sorted(windows)
    return ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
