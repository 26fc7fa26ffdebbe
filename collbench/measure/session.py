"""Everything one rank does of one job once its group is up, and what it writes of it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from collbench.backends import Backend, Refused, Unsupported
from collbench.job import Case, Job, Outcome, RankCase, RankResult, to_plain
from collbench.measure.host import HostClock, Times
from collbench.measure.slots import Slots, default_chain
from collbench.measure.step import measure_step

if TYPE_CHECKING:
    from collbench.measure.device import DeviceClock


class ResultFile:
    """A rank's result file: rewritten whole, so that a death loses one case and no more."""

    def __init__(self, path: str, rank: int) -> None:
        self._path = path
        self._done: list[RankResult] = []
        self.part = RankResult(rank=rank, outcome="hung", reason="opening the group")
        self.write()

    def update(self, **fields: object) -> None:
        """Change fields of the part in progress and write the file."""
        self.part = replace(self.part, **fields)  # type: ignore[arg-type]
        self.write()

    def next_part(self) -> None:
        """Close the part in progress and begin another."""
        self._done.append(self.part)
        self.part = RankResult(rank=self.part.rank, outcome="hung", facts=self.part.facts)

    def write(self) -> None:
        """Write all parts. No fsync: a machine that dies takes the launch with it."""
        text = json.dumps({"parts": to_plain([*self._done, self.part])})
        temporary = f"{self._path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)
        os.replace(temporary, self._path)  # noqa: PTH105


class Session:
    """Measures a job on an open backend. Every rank runs the same calls in the same order."""

    def __init__(self, job: Job, backend: Backend, results: ResultFile) -> None:
        self.job = job
        self.backend = backend
        self.results = results
        self._clock = _clock_for(job, backend)
        self._problems: list[tuple[Outcome, str]] = []
        self._measured = False

    def run(self) -> None:
        """Measure everything asked; the outcome of the part says how it went.

        Raises:
            Refused: the library rejected the settings in the middle.
        """
        started = time.perf_counter()
        self._problems, self._measured = [], False
        if self.backend.clock == "device":
            self._warm_up()
        if self.job.functions:
            self._functions()
        for case in self.job.cases:
            self._case(case)
        self._step()
        if self.job.pairs:
            self._pairs()
        self._finish(time.perf_counter() - started)

    def _finish(self, seconds: float) -> None:
        facts = self.results.part.facts
        if facts is not None:
            facts = replace(facts, seconds={**facts.seconds, "timing": seconds})
        outcome: Outcome = "ok"
        reason = ""
        for kind in ("wrong", "unsupported"):
            found = [text for name, text in self._problems if name == kind]
            if found and outcome == "ok" and (kind == "wrong" or not self._measured):
                outcome = "wrong" if kind == "wrong" else "unsupported"
                reason = found[0]
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
                    self._problems.append(("wrong", f"{key}: {verdict}"))
        finally:
            self.results.update(functions=seen)
        self._measured = True

    def _case(self, case: Case) -> None:
        self.results.update(reason=case.key)
        try:
            done = self._time_case(case)
        except Unsupported as error:
            self._problems.append(("unsupported", f"{case.key}: {error}"))
            done = RankCase(case=case, error=f"unsupported: {error}")
        except Exception as error:
            explained = self.backend.explain(error)
            if not isinstance(explained, Unsupported):
                text = " ".join(str(explained).split())[:300]
                kind = "refused" if isinstance(explained, Refused) else "died"
                failed = RankCase(case=case, error=f"{kind}: {text}")
                self.results.update(cases=(*self.results.part.cases, failed))
                raise explained from error
            self._problems.append(("unsupported", f"{case.key}: {explained}"))
            done = RankCase(case=case, error=f"unsupported: {explained}")
        if done.wrong:
            self._problems.append(("wrong", f"{case.key}: {done.wrong} wrong elements"))
        self.results.update(cases=(*self.results.part.cases, done))

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
        captured = self._captured_check(slots, case)
        if captured is not None:
            wrong += captured()
        slots.clear()
        times = self._times(case, slots, plan.chain)
        wrong += slots.check() if captured is None else captured()
        self._measured = True
        return RankCase(
            case=case,
            times_us=times.times_us,
            enqueue_us=times.enqueue_us,
            wrong=wrong,
            chain=times.chain,
        )

    def _times(self, case: Case, slots: Slots, chain: int | None) -> Times:
        clock = self._clock
        if not isinstance(clock, HostClock):
            chain = chain or default_chain(case.size_bytes)
        if case.mode == "entry":
            return clock.entry(slots.calls)
        if case.mode == "eager":
            return clock.eager(slots.calls, chain)
        return clock.chain(slots.calls, chain)

    def _captured_check(self, slots: Slots, case: Case):  # type: ignore[no-untyped-def]
        """Return a check that replays the calls as captured, where the case is timed so."""
        clock = self._clock
        if isinstance(clock, HostClock) or case.mode != "graph":
            return None
        graph = clock.capture(slots.calls)

        def check() -> int:
            slots.fill()
            with clock.on_stream():
                graph.replay()
            return slots.wrong()

        return check

    def _step(self) -> None:
        if self.job.step is None:
            return
        self.results.update(reason=f"step {self.job.step.name}")
        try:
            result = measure_step(
                self.backend, self._clock, self.job.step, self.job.plan, self.job.skew
            )
        except Unsupported as error:
            self._problems.append(("unsupported", f"step: {error}"))
            return
        self._measured = True
        if result.wrong:
            self._problems.append(("wrong", f"step: {result.wrong} wrong elements"))
        self.results.update(
            step_total_us=result.total_us,
            step_nocomm_us=result.nocomm_us,
            step_wrong=result.wrong,
        )

    def _pairs(self) -> None:
        self.results.update(reason="pairs of ranks")
        from collbench.measure.functions import probe_pairs

        pairs, wrong = probe_pairs(self.backend, self._clock)
        self._measured = True
        if wrong:
            self._problems.append(("wrong", f"pairs: {wrong} wrong elements"))
        self.results.update(pairs=tuple(pairs))


def _clock_for(job: Job, backend: Backend) -> HostClock | DeviceClock:
    if backend.clock == "host":
        return HostClock(backend, job.plan)
    from collbench.measure.device import DeviceClock

    return DeviceClock(backend, job.plan)  # type: ignore[arg-type]
