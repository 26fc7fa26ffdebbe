"""Fixed cost of a trial: everything of a launch in fresh processes but its timing.

On two GPUs, or on a CPU through MPI:

    torchrun --standalone --nproc-per-node 2 -m benchmarks.trial_cost nccl OUT.json
    torchrun --standalone --nproc-per-node 4 -m benchmarks.trial_cost mpi OUT.json

Exit code 1 where a goal is missed: 1.0 s in the median and 1.4 s at the 90th percentile for NCCL
on two GPUs, 0.4 s in the median for MPI with four ranks on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

from collbench.files import write_atomic
from collbench.front import run_module
from collbench.job import Case, Job, Plan
from collbench.machine import fingerprint
from collbench.pool import Pool, open_pool
from collbench.ranks import detect
from collbench.record import now_utc

GOALS = {"nccl": (1.0, 1.4), "mpi": (0.4, 0.8)}
"""Seconds: median and 90th percentile."""
PLANS = {
    "nccl": (Case(collective="all_reduce", size_bytes=8192, dtype="bfloat16", mode="graph"), {}),
    "mpi": (
        Case(collective="all_reduce", size_bytes=8192, dtype="float32", mode="eager"),
        {"OMPI_MCA_btl": "^ofi"},
    ),
}


def costs(pool: Pool, launches: int) -> tuple[list[float], list[dict[str, float]], str]:
    """Return the fixed cost of every launch, where each part of it went, and the library."""
    case, baseline = PLANS[pool.backend]
    fixed, parts, library = [], [], ""
    for number in range(launches):
        job = Job(
            job_id=f"cost-{number}",
            backend=pool.backend,
            nranks=pool.nranks,
            baseline=dict(baseline),
            cases=(case,),
            plan=Plan(replays=3),
        )
        run = pool.launch(job)
        if run.outcome != "ok":
            raise SystemExit(f"launch {number}: {run.outcome}: {run.reason}")
        seconds = run.ranks[0].seconds
        fixed.append(run.seconds - seconds["timing"])
        parts.append(seconds)
        library = run.ranks[0].library
    return fixed, parts, library


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.trial_cost", description=__doc__)
    parser.add_argument("backend", choices=sorted(GOALS))
    parser.add_argument("out", type=Path)
    parser.add_argument("--launches", type=int, default=50)
    given = parser.parse_args(arguments)
    pool = open_pool(detect(), given.backend)
    if pool.where.rank != 0:
        pool.serve()
        return 0
    try:
        fixed, parts, library = costs(pool, given.launches)
    finally:
        pool.close()
    middle, high = median(fixed), quantiles(fixed, n=10)[-1]
    goal = GOALS[given.backend]
    met = middle <= goal[0] and high <= goal[1]
    document = {
        "benchmark": "trial_cost",
        "backend": given.backend,
        "nranks": pool.nranks,
        "created": now_utc(),
        "machine": fingerprint(library=library).model_dump(mode="json"),
        "goal_s": {"median": goal[0], "p90": goal[1]},
        "median_s": round(middle, 4),
        "p90_s": round(high, 4),
        "met": met,
        "fixed_s": [round(value, 4) for value in fixed],
        "parts_s": {name: round(median(p[name] for p in parts), 4) for name in parts[0]},
    }
    write_atomic(given.out, json.dumps(document, indent=1) + "\n")
    print(f"{given.backend}: median {middle:.3f} s, p90 {high:.3f} s, goals {goal}: {met}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(run_module(main, sys.argv[1:]))
