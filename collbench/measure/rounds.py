"""Cases and the step of a device, timed a few windows at a time, in rounds.

Whatever disturbs a machine for a tenth of a second is common to windows that follow each other:
twenty windows in one go are hardly more than one. So each case gets its windows in `ROUNDS` goes,
spread over the launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from collbench.backends import Unsupported
from collbench.job import Case, Job, Plan, RankCase
from collbench.measure.device import DeviceClock
from collbench.measure.device_step import DeviceStep
from collbench.measure.results import Findings
from collbench.measure.slots import Slots, default_chain
from collbench.measure.step import StepResult

ROUNDS = 4
LARGEST_BYTES = 8 << 20
"""Messages above are timed in one go and given back: their windows are long by themselves."""


class GraphCase:
    """One case in graph mode: checked as captured, timed in goes, checked again.

    Every rank does the same.

    Raises:
        Unsupported: the backend cannot do it; every rank raises alike.
    """

    def __init__(self, clock: DeviceClock, case: Case, plan: Plan) -> None:
        self.case = case
        self._clock = clock
        self._chain = plan.chain or default_chain(case.size_bytes)
        self._slots = slots = Slots(
            clock.backend,
            case.collective,
            case.size_bytes,
            case.dtype,
            pool_bytes=plan.pool_bytes,
            uses=self._chain,
        )
        self._wrong = 0
        self._once = clock.capture(slots.calls)
        self._check()
        slots.clear()
        calls = [slots.calls[index % len(slots.calls)] for index in range(self._chain)]
        self._windows = clock.windows(clock.capture(calls))
        self._times_us: list[float] = []

    def time(self, windows: int) -> None:
        """Time `windows` more replays."""
        self._times_us += [us / self._chain for us in self._windows.time(windows)]

    def finish(self) -> None:
        """Check the data once more."""
        self._check()

    def share(self) -> RankCase:
        """Return what was timed so far: microseconds per call, one per replay."""
        return RankCase(
            case=self.case, times_us=list(self._times_us), wrong=self._wrong, chain=self._chain
        )

    def _check(self) -> None:
        self._slots.fill()
        with self._clock.on_stream():
            self._once.replay()
        self._wrong += self._slots.wrong()


def goes(windows: int) -> list[int]:
    """Return how many of `windows` are timed in each round.

    >>> goes(20), goes(6), goes(2)
    ([5, 5, 5, 5], [2, 2, 1, 1], [1, 1])
    """
    each, more = divmod(windows, ROUNDS)
    return [count for index in range(ROUNDS) if (count := each + (index < more))]


def in_rounds(
    job: Job, clock: DeviceClock, cases: Sequence[Case], findings: Findings
) -> StepResult | None:
    """Time `cases` in graph mode and the job's step; return the step's times, if it has one.

    Every rank calls it. What there is of every case is kept after each round, so a rank that dies
    loses the windows of one. Nothing captured outlives the call: a communicator is not destroyed
    while a graph refers to it.

    Raises:
        Exception: a failure that ends the launch.
    """
    plan = job.plan
    parts = []
    for case in cases:
        with findings.attempt(case):
            if case.size_bytes <= LARGEST_BYTES:
                parts.append(GraphCase(clock, case, plan))
            else:
                _at_once(GraphCase(clock, case, plan), plan, findings)
    step = _step(job, clock, findings)
    rounds = zip_longest(goes(plan.replays), goes(plan.step_replays), fillvalue=0)
    for windows, step_windows in rounds:
        for part in parts if windows else ():
            with findings.attempt(part.case):
                part.time(windows)
        findings.keep(*(part.share() for part in parts))
        if step is not None and step_windows:
            findings.results.update(reason=f"step {step.name}")
            step.time(step_windows)
    for part in parts:
        with findings.attempt(part.case):
            part.finish()
            findings.finished(part.share())
    if step is None:
        return None
    step.finish()
    return step.result


def _at_once(part: GraphCase, plan: Plan, findings: Findings) -> None:
    part.time(plan.replays)
    part.finish()
    findings.finished(part.share())


def _step(job: Job, clock: DeviceClock, findings: Findings) -> DeviceStep | None:
    if job.step is None:
        return None
    findings.results.update(reason=f"step {job.step.name}")
    try:
        return DeviceStep(clock, job.step, job.plan, job.skew)
    except Unsupported as error:
        findings.problem("unsupported", f"step: {error}")
        return None
