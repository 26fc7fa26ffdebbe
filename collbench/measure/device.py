"""Timing on CUDA streams: windows between replays of a captured graph, read by the device's clock.

Nothing stands in a window but the calls: no event inside a chain, no barrier, no host wait, and
launches that are slower than the work wait behind a gate until all of them are enqueued.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import median

import torch

from collbench.backends import Call, DeviceBackend
from collbench.job import Plan
from collbench.measure.host import Times

_CALIBRATION_CYCLES = 2_000_000
_LONGEST_GATE_US = 50_000.0


class DeviceClock:
    """Times graphs and eager calls on a side stream of one device, as servers replay them."""

    def __init__(self, backend: DeviceBackend, plan: Plan) -> None:
        self.backend = backend
        self.plan = plan
        self.stream = torch.cuda.Stream(backend.torch_device)
        self._cycles_per_us = 0.0

    def timed(self, sequence: Sequence[Call], windows: int) -> list[float]:
        """Return microseconds of replays of one captured `sequence`.

        Every rank calls it; ranks with nothing to do pass ``()``.
        """
        if not sequence:
            self.backend.barrier()
            return []
        return self.windows(self.capture(sequence)).time(windows)

    def windows(self, graph: torch.cuda.CUDAGraph) -> Windows:
        """Return what times replays of `graph`, as often as it is asked."""
        return Windows(self, graph)

    def capture(self, body: Sequence[Call]) -> torch.cuda.CUDAGraph:
        """Capture calls as one graph; what they use must have run eagerly before."""
        self.backend.drain()
        graph = torch.cuda.CUDAGraph()
        with self.on_stream(), warnings.catch_warnings():
            # An empty step is how the overhead of a window is shown; torch warns of empty graphs.
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for call in body:
                    call()
            except BaseException:
                with contextlib.suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        return graph

    def eager(self, calls: Sequence[Call], chain: int | None) -> Times:
        """Time loops of eager calls by the host's clock, as nccl-tests: one wait at each end.

        Returns microseconds per call, and of them those the host took to enqueue it: where that is
        most of the period, the launch was timed and not the transfer.
        """
        count = chain or len(calls)
        sequence = [calls[index % len(calls)] for index in range(count)]
        times, enqueues = [], []
        clock = time.perf_counter
        with self.on_stream():
            for window in range(self.plan.replays + 1):
                self.backend.barrier()
                started = clock()
                for call in sequence:
                    call()
                enqueued = clock()
                self.stream.synchronize()
                done = clock()
                if window:  # the first pass is untimed
                    times.append((done - started) * 1e6 / count)
                    enqueues.append((enqueued - started) * 1e6 / count)
        return Times(times, count, median(enqueues) if enqueues else None)

    def entry(self, calls: Sequence[Call]) -> Times:
        """Time single calls that every rank enters together, behind a gate the launch hides in.

        Returns microseconds per call; the skew of the ranks' entry is below that of one tiny
        collective.
        """
        pairs = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(self.plan.entry_samples)
        ]

        def aligned_call() -> None:
            self.backend.align()
            calls[0]()

        with self.on_stream():
            self.backend.barrier()
            launch_us = 0.0
            for _ in range(max(1, self.plan.warmup_replays)):
                launch_us, _ = self.once(aligned_call)
            gate_us = min(100.0 + 4.0 * launch_us, _LONGEST_GATE_US)
            self.backend.barrier()
            for index, (before, after) in enumerate(pairs):
                self.spin(gate_us)
                self.backend.align()
                before.record(self.stream)
                calls[index % len(calls)]()
                after.record(self.stream)
            self.stream.synchronize()
        return Times([1e3 * before.elapsed_time(after) for before, after in pairs], 1)

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        """Make the side stream current."""
        with torch.cuda.stream(self.stream):
            yield

    def spin(self, delay_us: float) -> None:
        """Enqueue a kernel that keeps the stream busy for `delay_us`."""
        self.spinner(delay_us)()

    def spinner(self, delay_us: float) -> Callable[[], None]:
        """Return a call that enqueues such a kernel; never make one during a capture."""
        if not self._cycles_per_us:
            self._calibrate()
        cycles = max(1, int(delay_us * self._cycles_per_us))

        def spin() -> None:
            torch.cuda._sleep(cycles)

        return spin

    def _calibrate(self) -> None:
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self.on_stream():
            torch.cuda._sleep(_CALIBRATION_CYCLES)  # loads the kernel
            before.record(self.stream)
            torch.cuda._sleep(_CALIBRATION_CYCLES)
            after.record(self.stream)
            self.stream.synchronize()
        self._cycles_per_us = _CALIBRATION_CYCLES / (1e3 * before.elapsed_time(after))

    def once(self, replay: Call) -> tuple[float, float]:
        """Return the host's microseconds to launch once, and until it is done."""
        started = time.perf_counter()
        replay()
        launched = time.perf_counter()
        self.stream.synchronize()
        done = time.perf_counter()
        return (launched - started) * 1e6, (done - started) * 1e6


class Windows:
    """Replays of one graph, timed in as many goes as asked: only the first warms up."""

    def __init__(self, clock: DeviceClock, graph: torch.cuda.CUDAGraph) -> None:
        self._clock = clock
        self._graph = graph
        self._gate_us: float | None = None
        """How long a spin kernel has to hold the stream for each replay; None before the first."""

    def time(self, windows: int) -> list[float]:
        """Return microseconds of the next `windows` replays; every rank calls it.

        They are enqueued without a host wait between them.
        """
        clock, replay = self._clock, self._graph.replay
        events = [torch.cuda.Event(enable_timing=True) for _ in range(windows + 1)]
        with clock.on_stream():
            clock.backend.barrier()
            if self._gate_us is None:
                self._gate_us = self._warm_up(replay)
            if self._gate_us:
                clock.spin(min(self._gate_us * (windows + 1), _LONGEST_GATE_US))
            replay()  # untimed: brings the ranks together again
            events[0].record(clock.stream)
            for event in events[1:]:
                replay()
                event.record(clock.stream)
            clock.stream.synchronize()
        return [1e3 * before.elapsed_time(after) for before, after in pairwise(events)]

    def _warm_up(self, replay: Call) -> float:
        """Return twice the launch of a replay, in us, where that is longer than the replay."""
        clock = self._clock
        for _ in range(max(0, clock.plan.warmup_replays - 2)):
            replay()
        clock.stream.synchronize()
        launch_us, whole_us = clock.once(replay)
        return 2.0 * launch_us if launch_us > 0.5 * whole_us else 0.0
