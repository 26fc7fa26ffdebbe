"""Everything one rank does of one job once its group is up."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from collbench.backends import Backend, Unsupported
from collbench.job import Case, Job, RankCase
from collbench.measure.host import HostClock, Times
from collbench.measure.results import Findings, ResultFile
from collbench.measure.slots import Slots, default_chain
from collbench.measure.step import StepResult, host_step

if TYPE_CHECKING:
    from collbench.measure.device import DeviceClock


class Session:
    """Measures a job on an open backend. Every rank runs the same calls in the same order."""

    def __init__(self, job: Job, backend: Backend, results: ResultFile) -> None:
        self.job = job
        self.backend = backend
        self.results = results
        self._clock = _clock_for(job, backend)

    def run(self) -> None:
        """Measure everything asked; the outcome of the part says how it went.

        Raises:
            Refused: the library rejected the settings in the middle.
        """
        started = time.perf_counter()
        self._findings = Findings(self.job, self.backend, self.results)
        clock = self._clock
        if not isinstance(clock, HostClock):
            self._warm_up()
        if self.job.functions:
            self._functions()
        if isinstance(clock, HostClock):
            for case in self.job.cases:
                self._case(case)
            self._step_on_host(clock)
        else:
            self._on_device(clock)
        if self.job.pairs:
            self._pairs()
        self._finish(time.perf_counter() - started)

    def _finish(self, seconds: float) -> None:
        facts = self.results.part.facts
        if facts is not None:
            facts = replace(facts, seconds={**facts.seconds, "timing": seconds})
        outcome, reason = self._findings.outcome()
        self.results.update(outcome=outcome, reason=reason, facts=facts)

    def _warm_up(self) -> None:
        """Run every call of the job once, eagerly: channels connect at the first use of each.

        Afterwards the communicator holds all the GPU memory it is going to.
        """
        self.results.update(reason="warming up")
        wanted = [(case.collective, case.size_bytes, case.dtype) for case in self.job.cases]
        if self.job.step is not None:
            wanted += [(c.collective, c.size_bytes, c.dtype) for c in self.job.step.calls]
        for collective, size_bytes, dtype in dict.fromkeys(wanted):
            with contextlib.suppress(Unsupported):  # told where the case is timed
                slots = Slots(self.backend, collective, size_bytes, dtype, pool_bytes=0, uses=1)
                slots.run_once()
        self.backend.barrier()
        if self.results.part.facts is not None:
            memory = self.backend.memory_used()
            self.results.update(facts=replace(self.results.part.facts, memory_bytes=memory))

    def _functions(self) -> None:
        self.results.update(reason="smoke of the functions a server calls")
        from collbench.measure.functions import smoke

        seen: dict[str, str] = {}
        try:
            for key, verdict in smoke(self.backend):
                seen[key] = verdict
                if verdict != "ok":
                    self._findings.problem("wrong", f"{key}: {verdict}")
        finally:
            self.results.update(functions=seen)
        self._findings.measured = True

    def _case(self, case: Case) -> None:
        with self._findings.attempt(case):
            self._findings.finished(self._time_case(case))

    def _time_case(self, case: Case) -> RankCase:
        plan = self.job.plan
        chain = plan.chain or default_chain(case.size_bytes)
        slots = Slots(
            self.backend,
            case.collective,
            case.size_bytes,
            case.dtype,
            pool_bytes=plan.pool_bytes,
            uses=chain,
        )
        wrong = slots.check()
        slots.clear()
        times = self._times(case, slots, chain)
        wrong += slots.check()
        return RankCase(
            case=case,
            times_us=times.times_us,
            enqueue_us=times.enqueue_us,
            wrong=wrong,
            chain=times.chain,
        )

    def _times(self, case: Case, slots: Slots, chain: int) -> Times:
        clock = self._clock
        if case.mode == "entry":
            return clock.entry(slots.calls)
        if isinstance(clock, HostClock):
            return clock.chain(slots.calls, self.job.plan.chain)
        return clock.eager(slots.calls, chain)

    def _on_device(self, clock: DeviceClock) -> None:
        """Time the cases in graph mode and the step together, in rounds, and then the others."""
        from collbench.measure.rounds import in_rounds

        graphs = [case for case in self.job.cases if case.mode == "graph"]
        step = in_rounds(self.job, clock, graphs, self._findings)
        for case in self.job.cases:
            if case.mode != "graph":
                self._case(case)
        if step is not None:
            self._keep_step(step)

    def _step_on_host(self, clock: HostClock) -> None:
        job = self.job
        if job.step is None:
            return
        self.results.update(reason=f"step {job.step.name}")
        try:
            self._keep_step(host_step(self.backend, clock, job.step, job.plan, job.skew))
        except Unsupported as error:
            self._findings.problem("unsupported", f"step: {error}")

    def _keep_step(self, result: StepResult) -> None:
        self._findings.measured = True
        if result.wrong:
            self._findings.problem("wrong", f"step: {result.wrong} wrong elements")
        self.results.update(
            step_total_us=result.total_us,
            step_nocomm_us=result.nocomm_us,
            step_wrong=result.wrong,
        )

    def _pairs(self) -> None:
        self.results.update(reason="pairs of ranks")
        from collbench.measure.functions import probe_pairs

        pairs, wrong = probe_pairs(self.backend, self._clock)
        self._findings.measured = True
        if wrong:
            self._findings.problem("wrong", f"pairs: {wrong} wrong elements")
        self.results.update(pairs=tuple(pairs))


def _clock_for(job: Job, backend: Backend) -> HostClock | DeviceClock:
    if backend.clock == "host":
        return HostClock(backend, job.plan)
    from collbench.measure.device import DeviceClock

    return DeviceClock(backend, job.plan)  # type: ignore[arg-type]
