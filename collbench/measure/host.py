"""Timing on backends whose calls return when they are done: barrier and monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from collbench.backends import Backend, Call
from collbench.job import Plan

_MOST_CALLS = 100_000
"""Upper bound of one batch, against a clock that stands still."""
_PROBE_CALLS = 20


@dataclass(frozen=True, slots=True)
class Times:
    """What one measurement gave on this rank."""

    times_us: list[float]
    chain: int
    """Calls (or steps) in one window."""
    enqueue_us: float | None = None


class HostClock:
    """Times batches of calls back to back, each after a barrier."""

    def __init__(self, backend: Backend, plan: Plan) -> None:
        self.backend = backend
        self.plan = plan

    def chain(self, calls: Sequence[Call], chain: int | None) -> Times:
        """Time batches of about `Plan.batch_us`, all of one length that rank 0 chooses.

        Returns microseconds per call, one per batch, as this rank saw them.
        """
        one_us = self._probe(calls, _PROBE_CALLS)
        wanted = chain or max(5, int(self.plan.batch_us / max(one_us, 0.01)))
        batch = int(self.backend.agree(float(min(wanted, _MOST_CALLS))))
        sequence = [calls[index % len(calls)] for index in range(batch)]
        return Times([us / batch for us in self._windows(sequence, self.plan.replays)], batch)

    def eager(self, calls: Sequence[Call], chain: int | None) -> Times:
        """As `chain`: without a device there is nothing else that could be launched."""
        return self.chain(calls, chain)

    def entry(self, calls: Sequence[Call]) -> Times:
        """Time single calls, each right after a barrier."""
        self._probe(calls, self.plan.warmup_replays)
        sequences = [[calls[index % len(calls)]] for index in range(self.plan.entry_samples)]
        return Times([self._window(sequence) for sequence in sequences], 1)

    def step(self, sequence: Sequence[Call]) -> Times:
        """Time the whole sequence, repeated until a window is about `Plan.batch_us` long."""
        for _ in range(self.plan.warmup_replays - 1):
            for call in sequence:
                call()
        one_us = self._window(sequence)
        repeats = int(self.backend.agree(float(max(1, int(self.plan.batch_us / max(one_us, 0.1))))))
        if not sequence:
            repeats = 1
        repeated = list(sequence) * min(repeats, max(1, _MOST_CALLS // max(1, len(sequence))))
        count = len(repeated) // max(1, len(sequence)) or 1
        return Times([us / count for us in self._windows(repeated, self.plan.step_replays)], count)

    def timed(self, sequence: Sequence[Call], windows: int) -> list[float]:
        """Return microseconds of whole passes; ranks with nothing to do pass ``()``."""
        return self._windows(sequence, windows)

    def _probe(self, calls: Sequence[Call], count: int) -> float:
        sequence = [calls[index % len(calls)] for index in range(max(1, count))]
        self._window(sequence[: self.plan.warmup_replays])
        return self._window(sequence) / len(sequence)

    def _windows(self, sequence: Sequence[Call], windows: int) -> list[float]:
        return [self._window(sequence) for _ in range(windows)]

    def _window(self, sequence: Sequence[Call]) -> float:
        """Return the microseconds of one pass; nothing but the calls is in it."""
        clock = time.perf_counter
        self.backend.barrier()
        started = clock()
        for call in sequence:
            call()
        return (clock() - started) * 1e6


def busy_wait(delay_us: float) -> Callable[[], None]:
    """Return a call that keeps its CPU busy for `delay_us`."""

    def spin() -> None:
        end = time.perf_counter() + delay_us * 1e-6
        while time.perf_counter() < end:
            pass

    return spin
