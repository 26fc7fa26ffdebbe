"""A/A and ceiling: what can be seen on this machine, and whether there is anything to gain."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from collbench.confirm.arms import Setup, default_launch
from collbench.confirm.objective import Sample
from collbench.confirm.statistics import interval, launch_sd, median_log, qn
from collbench.job import Settings

CEILING = 0.02
"""Exposed communication under this fraction of the step: nothing worth tuning."""
PAIRS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """The default against itself."""

    sd: float
    """Launch-to-launch sd of the log objective, outliers aside."""
    default_us: float
    exposed_us: float | None
    ratio: float
    """Of the pairs of neighbours; its interval must hold 1."""
    interval: tuple[float, float]
    launches: int
    seconds_per_launch: float
    samples: tuple[Sample, ...] = ()
    case_sd: Mapping[str, float] = field(default_factory=dict)
    """The same for every guarded case that was timed."""

    @property
    def honest(self) -> bool:
        """Return whether the default agrees with itself."""
        return self.interval[0] <= 1 <= self.interval[1]

    @property
    def too_little(self) -> bool:
        """Return whether exposed communication is too small a part of the step to tune.

        Of the objective ``decode``: the others are made of collectives alone.
        """
        return self.exposed_us is not None and self.exposed_us < CEILING * self.default_us


def measure_floor(setup: Setup, reference: Settings, *, beside: bool, pairs: int = PAIRS) -> Floor:
    """Launch the reference against itself, `pairs` pairs of neighbours.

    Args:
        setup: The lab and how its launches are read.
        reference: Settings that stand for the default.
        beside: Pairs are how candidates are scored on this host (CPU): the noise is then the
            spread of the pairs' ratios, over the root of two.
        pairs: Number of pairs.
    """
    began = time.monotonic()
    samples = [default_launch(setup, "search", reference) for _ in range(2 * pairs)]
    seconds = (time.monotonic() - began) / len(samples)
    return floor_of(samples, beside=beside, seconds_per_launch=seconds)


def floor_of(samples: Sequence[Sample], *, beside: bool, seconds_per_launch: float) -> Floor:
    """Return the noise floor that launches of the reference show, an even number in order."""
    values = [s.value_us for s in samples]
    logs = _pair_logs(values)
    cases = sorted(set.intersection(*(set(s.cases) for s in samples)))
    exposed = [s.exposed_us for s in samples if s.exposed_us is not None]
    # The clock and the noise model are not finer than this.
    sd = max(_sd(values, beside=beside), 1e-4)
    # 99 %: eight pairs of an honest A/A must not be called dishonest once in twenty sweeps.
    return Floor(
        sd=sd,
        default_us=float(median(values)),
        exposed_us=float(median(exposed)) if exposed else None,
        ratio=math.exp(median_log(logs)),
        interval=interval(logs, level=0.99),
        launches=len(values),
        seconds_per_launch=seconds_per_launch,
        samples=tuple(samples),
        case_sd={case: max(_case_sd(samples, case, beside=beside), sd) for case in cases},
    )


def _pair_logs(values: Sequence[float]) -> list[float]:
    pairs = zip(values[::2], values[1::2], strict=True)
    return [math.log(second / first) for first, second in pairs]


def _sd(values: Sequence[float], *, beside: bool) -> float:
    """Return the sd of a launch: of neighbours' ratios where only those can be compared."""
    if not beside:
        return launch_sd(values)
    return qn(np.array(_pair_logs(values))) / math.sqrt(2)


def _case_sd(samples: Sequence[Sample], case: str, *, beside: bool) -> float:
    return _sd([s.cases[case] for s in samples], beside=beside)
