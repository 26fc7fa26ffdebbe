"""Our timing of bare calls against a plain loop: blocks of both alternate in one process.

    mpirun -n 2 python -m benchmarks.plain_loop mpi OUT.json
    torchrun --standalone --nproc-per-node 2 -m benchmarks.plain_loop nccl OUT.json

What they time is the same call in the same group, on GPUs on a side stream as servers use,
so a difference is the overhead of our windows. Launching is up to the host, whose speed changes in
the middle: a block of ours is compared with the plain block beside it, and the ratio is the median
over the pairs, with its 95 % bootstrap interval.
Exit code 1 where a ratio is 5 % or more from 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from collbench.backends import Backend, open_backend
from collbench.files import write_atomic
from collbench.job import Job, Place, Plan
from collbench.measure.host import HostClock
from collbench.measure.slots import Slots
from collbench.stats import ratio_interval, ratio_of_medians

LARGEST_DIFFERENCE = 0.05
SIZES = (1 << 10, 16 << 10, 64 << 10, 256 << 10)
BLOCKS = 32
WINDOWS = 5
CALLS = 100


def place() -> Place:
    """Return this rank's place from torchrun's or mpirun's variables."""
    env = os.environ
    rank = int(env.get("RANK") or env.get("OMPI_COMM_WORLD_RANK") or env["PMI_RANK"])
    size = int(env.get("WORLD_SIZE") or env.get("OMPI_COMM_WORLD_SIZE") or env["PMI_SIZE"])
    return Place(
        rank=rank,
        nranks=size,
        local_rank=int(env.get("LOCAL_RANK", rank)),
        local_world_size=size,
        result_path="",
        store_host=env.get("MASTER_ADDR", ""),
        store_port=int(env.get("MASTER_PORT", "0")),
        store_prefix="plain_loop",
    )


def plain_loop(backend: Backend, slots: Slots) -> Callable[[], list[float]]:
    """Return a function that times loops as one would by hand, in us per call."""
    message, clock = slots.calls[0], time.perf_counter
    drain: Callable[[], None] = lambda: None  # noqa: E731
    stream: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if backend.clock == "device":
        import torch

        side = torch.cuda.Stream()
        drain, stream = side.synchronize, torch.cuda.stream(side)

    def block() -> list[float]:
        times = []
        with stream:
            for _ in range(WINDOWS + 1):
                backend.barrier()
                started = clock()
                for _ in range(CALLS):
                    message()
                drain()
                times.append((clock() - started) / CALLS * 1e6)
        return times[1:]

    return block


def ours(backend: Backend, slots: Slots) -> Callable[[], list[float]]:
    """Return a function that times windows as `bench --mode eager` does, in us per call."""
    plan = Plan(replays=WINDOWS)
    clock: Any
    if backend.clock == "host":
        clock = HostClock(backend, plan)
    else:
        from collbench.measure.device import DeviceClock

        clock = DeviceClock(backend, plan)  # type: ignore[arg-type]
    return lambda: list(clock.eager(slots.calls, CALLS).times_us)


def per_block(times: Sequence[float]) -> list[float]:
    """Return the median of every block's windows, in us per call."""
    return [median(times[first : first + WINDOWS]) for first in range(0, len(times), WINDOWS)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.plain_loop", description=__doc__)
    parser.add_argument("backend", choices=("mpi", "nccl", "gloo"))
    parser.add_argument("out", type=Path)
    given = parser.parse_args(arguments)
    name, out = given.backend, given.out
    where = place()
    dtype = "bfloat16" if name == "nccl" else "float32"
    backend = open_backend(name, Job(job_id="plain", backend=name, nranks=where.nranks), where)
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        slots = Slots(backend, "all_reduce", size, dtype, pool_bytes=size, uses=1)
        assert slots.check() == 0
        slots.clear()
        arms = {"plain": plain_loop(backend, slots), "ours": ours(backend, slots)}
        times: dict[str, list[float]] = {arm: [] for arm in arms}
        for block in range(BLOCKS):
            for arm in list(arms) if block % 2 else list(reversed(arms)):
                times[arm] += arms[arm]()
        plain, mine = (per_block(times[arm]) for arm in ("plain", "ours"))
        rows.append(
            {
                "size_bytes": size,
                "plain_us": median(times["plain"]),
                "ours_us": median(times["ours"]),
                "ratio": ratio_of_medians(plain, mine, paired=True),
                "interval": ratio_interval(plain, mine, paired=True),
                "plain_windows_us": [round(us, 3) for us in times["plain"]],
                "ours_windows_us": [round(us, 3) for us in times["ours"]],
            }
        )
    passed = all(abs(row["ratio"] - 1) <= LARGEST_DIFFERENCE for row in rows)
    if where.rank == 0:
        document = {
            "schema": 1,
            "benchmark": "plain_loop",
            "backend": name,
            "library": backend.library()[0],
            "nranks": where.nranks,
            "blocks": BLOCKS,
            "windows": WINDOWS,
            "calls": CALLS,
            "sizes": rows,
            "passed": passed,
        }
        write_atomic(out, json.dumps(document, indent=1) + "\n")
        for row in rows:
            low, high = row["interval"]
            print(
                f"{row['size_bytes']:>8} B  ours/plain {row['ratio']:.3f} [{low:.3f}, {high:.3f}]"
            )
    backend.barrier()
    backend.close()
    return 0 if passed or where.rank != 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
