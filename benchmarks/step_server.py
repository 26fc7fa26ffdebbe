"""A small server of decode steps: real processes, real collectives, step timings as JSON.

One rank. Each step makes `--count` all-reduces of `--bytes`, with some work before each, and is
timed; on GPUs the step is one captured graph. `--late RANK` gives one rank extra work. Rank 0
writes a file of step timings as `collbench diagnose --steps` reads them; all ranks stay until a
file with ``.stop`` behind its name is there, so that they can be looked at.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

HOLD_S = 300
POOL_BYTES = 1 << 20
"""Calls go in place through a pool, as in servers and the bench: one buffer stays in a cache."""
Step = Callable[[float], tuple[float, float]]
"""Extra work in us -> (step in ms, time in collectives in ms), of this rank."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("mpi", "nccl"), required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--bytes", type=int, default=16384)
    parser.add_argument("--label", default="before")
    parser.add_argument("--late", type=int, default=-1)
    parser.add_argument("--late-us", type=float, default=0.0)
    parser.add_argument("--out", required=True)
    return parser.parse_args()


def work(us: float) -> None:
    """Keep this core busy."""
    end = time.perf_counter() + us * 1e-6
    while time.perf_counter() < end:
        pass


def mpi(asked: argparse.Namespace) -> tuple[int, Step, Callable[[Any], list[Any]]]:
    import numpy as np
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    slots = max(1, POOL_BYTES // asked.bytes)
    pool = [np.zeros(asked.bytes // 4, np.float32) for _ in range(slots)]
    calls = [
        partial(world.Allreduce, MPI.IN_PLACE, pool[call % slots]) for call in range(asked.count)
    ]

    def step(extra_us: float) -> tuple[float, float]:
        world.Barrier()
        worked = 0.0
        begun = time.perf_counter()
        for call in calls:
            if extra_us:
                started = time.perf_counter()
                work(extra_us)
                worked += time.perf_counter() - started
            call()
        total = time.perf_counter() - begun
        return total * 1e3, (total - worked) * 1e3

    return world.rank, step, world.allgather


def nccl(asked: argparse.Namespace) -> tuple[int, Step, Callable[[Any], list[Any]]]:
    import torch
    import torch.distributed as dist

    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    for name in ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST"):
        if name in os.environ:
            print(f"{name}={os.environ[name]}", file=sys.stderr)
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    control = dist.new_group(backend="gloo")
    slots = max(1, POOL_BYTES // asked.bytes)
    pool = [
        torch.zeros(asked.bytes // 2, dtype=torch.bfloat16, device="cuda") for _ in range(slots)
    ]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for data in pool:
            dist.all_reduce(data)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for call in range(asked.count):
            dist.all_reduce(pool[call % slots])
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    busy = torch.ones((2048, 2048), dtype=torch.bfloat16, device="cuda")

    def step(extra_us: float) -> tuple[float, float]:
        torch.cuda.synchronize()
        dist.barrier(control)
        begun = time.perf_counter()
        with torch.cuda.stream(stream):
            if extra_us:
                # A rank slowed by compute: its own work before it joins the collectives.
                late = time.perf_counter() + extra_us * asked.count * 1e-6
                while time.perf_counter() < late:
                    torch.mm(busy, busy)
                    stream.synchronize()
            marks[0].record(stream)
            graph.replay()
            marks[1].record(stream)
        stream.synchronize()
        return (time.perf_counter() - begun) * 1e3, marks[0].elapsed_time(marks[1])

    def gather(value: Any) -> list[Any]:
        found: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(found, value, group=control)
        return found

    return rank, step, gather


def main() -> None:
    asked = arguments()
    rank, step, gather = {"mpi": mpi, "nccl": nccl}[asked.backend](asked)
    extra = asked.late_us if rank == asked.late else 0.0
    for _ in range(3):
        step(extra)
    gathered = [gather(step(extra)) for _ in range(asked.steps)]
    if rank == 0:
        ready = Path(asked.out + ".part")
        ready.write_text(json.dumps({"runs": [run_of(asked, gathered)]}))
        ready.rename(asked.out)
    stop = Path(asked.out + ".stop")
    deadline = time.monotonic() + HOLD_S
    while not stop.exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def run_of(asked: argparse.Namespace, gathered: list[list[tuple[float, float]]]) -> dict[str, Any]:
    """Return the run as a file of step timings; the last rank in waits least."""
    inside = [[ranks[rank][1] for ranks in gathered] for rank in range(len(gathered[0]))]
    transfer = [min(rank[1] for rank in ranks) for ranks in gathered]
    waits = [
        [value - least for value, least in zip(rank, transfer, strict=True)] for rank in inside
    ]
    return {
        "label": asked.label,
        "graph": True,
        "allreduce": {"count": asked.count, "bytes": asked.bytes},
        "verify_ms": [max(rank[0] for rank in ranks) for ranks in gathered],
        "rank_wait_ms": [median(rank) for rank in waits],
        "rank_transfer_ms": [median(transfer)] * len(inside),
    }


if __name__ == "__main__":
    main()
