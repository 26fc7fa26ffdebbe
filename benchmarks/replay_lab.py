"""A recorded landscape as a lab: launches are drawn, nothing is timed.

A draw multiplies the truth of a setting by launch noise (lognormal), in one launch of twenty by an
outlier (10 to 40 % slower), and by a slow drift of 2 % either way; every case of a launch has noise
of its own on top. A setting that failed in the record fails in as many of its draws.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

from benchmarks.landscape import Landscape
from collbench.job import Case, CaseTimes, Run, Settings, StepTimes
from collbench.lab import Purpose
from collbench.space.axes import key

OUTLIERS = 0.05
DRIFT = 0.02
_WINDOWS = (0.9985, 0.9995, 1.0, 1.0005, 1.0015)


class ReplayLab:
    """Answers launches from a landscape."""

    def __init__(self, landscape: Landscape, sd: float, seed: int) -> None:
        self._landscape = landscape
        self._sd = sd
        self._rng = random.Random(seed)
        self._phase = self._rng.uniform(0, 2 * math.pi)
        self._period = self._rng.uniform(80, 240)
        self._cases = {c: _case(c) for c in landscape.default.cases}
        self.count = 0

    def launch(self, settings: Settings, purpose: Purpose, *, env_file: Path | None = None) -> Run:
        """Draw one launch."""
        self.count += 1
        failure = self._landscape.failures.get(key(settings))
        if failure is not None and self._rng.random() < failure.share:
            return Run(
                job_id="replay",
                settings=dict(settings),
                outcome=failure.outcome,
                reason=failure.reason,
            )
        truth = self._landscape.truths[key(settings)]
        drift = DRIFT * math.sin(2 * math.pi * self.count / self._period + self._phase)
        factor = math.exp(drift + self._rng.gauss(0, self._sd))
        if self._rng.random() < OUTLIERS:
            factor *= 1 + self._rng.uniform(0.10, 0.40)
        step = truth.step_us * factor
        times = tuple(
            CaseTimes(
                case=self._cases[case],
                times_us=[[us * factor * math.exp(self._rng.gauss(0, self._sd))]],
            )
            for case, us in truth.cases.items()
        )
        return Run(
            job_id="replay",
            settings=dict(settings),
            outcome="ok",
            cases=times,
            step=StepTimes(
                total_us=[[step * window for window in _WINDOWS]],
                nocomm_us=[[truth.nocomm_us * factor]],
            ),
        )

    def launch_communicators(
        self, shared: Settings, each: Sequence[Settings], purpose: Purpose
    ) -> list[Run]:
        """Draw one launch for each; the record holds fresh processes only."""
        return [self.launch({**shared, **one}, purpose) for one in each]


def _case(text: str) -> Case:
    collective, size, dtype, _ = text.split("/")
    return Case(collective=collective, size_bytes=int(size), dtype=dtype, mode="graph")
