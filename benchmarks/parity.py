"""Agreement with nccl-tests, and the spread between launches of the default, on two GPUs.

Run under torchrun with two ranks:

    NCCL_P2P_DISABLE=1 torchrun --standalone --nproc-per-node 2 -m benchmarks.parity OUT.json

Two kinds of launches alternate: one with NCCL_GRAPH_REGISTER=0, as the recorded nccl-tests figures
were taken, and one of the default. Exit code 1 where a bound is missed.

The recorded figures: nccl-tests 2.19.6, ``mpirun -np 2 all_reduce_perf -b 8K -e 1M -f 2 -g 1 -d
bfloat16 -w 20 -n 100 -G 10 -c 0``, in place, NCCL 2.28.9, 2x NVIDIA H200 of one host,
NCCL_P2P_DISABLE=1 NCCL_GRAPH_REGISTER=0 NCCL_NVLS_ENABLE=0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from collbench.files import write_atomic
from collbench.front import run_module
from collbench.job import Case, Job, Run
from collbench.machine import fingerprint
from collbench.pool import open_pool
from collbench.ranks import detect
from collbench.record import allowed_env, now_utc
from collbench.stats import launch_value, relative_sd
from collbench.workload import load

NCCL_TESTS_US = {
    8 << 10: 10.4,
    16 << 10: 10.9,
    32 << 10: 11.8,
    64 << 10: 15.0,
    128 << 10: 21.4,
    256 << 10: 35.1,
    512 << 10: 45.3,
    1 << 20: 61.4,
}
LARGEST_MEDIAN_DIFFERENCE = 0.015
LARGEST_DIFFERENCE = 0.03
LARGEST_SD = 0.02
LARGEST_STEP_SD = 0.006
SPREAD_SIZES = [1 << shift for shift in range(10, 23)]


def cases(sizes: Sequence[int]) -> tuple[Case, ...]:
    return tuple(
        Case(collective="all_reduce", size_bytes=size, dtype="bfloat16", mode="graph")
        for size in sizes
    )


def values(runs: Sequence[Run]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for run in runs:
        for times in run.cases:
            if times.error is None:
                found.setdefault(times.case.size_bytes, []).append(launch_value(times.times_us))
    return found


def parity(runs: Sequence[Run]) -> dict[str, Any]:
    """Return how far the median over launches lies from nccl-tests, per size."""
    per_size = {size: median(us) for size, us in values(runs).items()}
    differences = {size: per_size[size] / NCCL_TESTS_US[size] - 1 for size in sorted(per_size)}
    middle = median(abs(d) for d in differences.values())
    largest = max(abs(d) for d in differences.values())
    return {
        "sizes": [
            {
                "size_bytes": size,
                "us": per_size[size],
                "nccl_tests_us": NCCL_TESTS_US[size],
                "difference_pct": 100 * difference,
                "values_us": values(runs)[size],
            }
            for size, difference in differences.items()
        ],
        "median_difference_pct": 100 * middle,
        "largest_difference_pct": 100 * largest,
        "passed": middle <= LARGEST_MEDIAN_DIFFERENCE and largest <= LARGEST_DIFFERENCE,
    }


def spread(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the standard deviation over launches of the default, per size and of the step."""
    found = values(runs)
    per_size = {size: relative_sd(us) or 0.0 for size, us in sorted(found.items())}
    steps = [launch_value(run.step.total_us) for run in runs if run.step]
    bare = [launch_value(run.step.nocomm_us) for run in runs if run.step]
    step_sd = relative_sd(steps) or 0.0
    return {
        "sizes": [
            {"size_bytes": size, "sd_pct": 100 * sd, "values_us": found[size]}
            for size, sd in per_size.items()
        ],
        "step_us": steps,
        "step_nocomm_us": bare,
        "exposed_us": median(steps) - median(bare),
        "step_sd_pct": 100 * step_sd,
        "passed": all(sd <= LARGEST_SD for sd in per_size.values()) and step_sd <= LARGEST_STEP_SD,
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.parity")
    parser.add_argument("out", type=Path)
    parser.add_argument("--launches", type=int, default=10)
    options = parser.parse_args(arguments)
    pool = open_pool(detect(), "nccl")
    if pool.where.rank != 0:
        pool.serve()
        return 0
    try:
        alike: list[Run] = []
        default: list[Run] = []
        for number in range(options.launches):
            alike.append(
                pool.launch(
                    Job(
                        job_id=f"alike-{number}",
                        backend="nccl",
                        nranks=pool.nranks,
                        settings={"NCCL_P2P_DISABLE": "1", "NCCL_GRAPH_REGISTER": "0"},
                        cases=cases(list(NCCL_TESTS_US)),
                        deadline_s=60.0,
                    )
                )
            )
            default.append(
                pool.launch(
                    Job(
                        job_id=f"default-{number}",
                        backend="nccl",
                        nranks=pool.nranks,
                        settings={"NCCL_P2P_DISABLE": "1"},
                        cases=cases(SPREAD_SIZES),
                        step=load("verify-61x7168").step,
                        deadline_s=60.0,
                    )
                )
            )
            print(f"{number + 1} of {options.launches}", file=sys.stderr, flush=True)
    finally:
        pool.close()
    bad = [f"{r.job_id}: {r.outcome}: {r.reason}" for r in (*alike, *default) if r.outcome != "ok"]
    if bad:
        print("\n".join(bad), file=sys.stderr)
    if not any(r.outcome == "ok" for r in alike) or not any(r.outcome == "ok" for r in default):
        return 1
    facts = next(run.ranks for run in default if run.outcome == "ok")
    document = {
        "schema": 1,
        "benchmark": "parity",
        "created": now_utc(),
        "command": "torchrun --standalone --nproc-per-node 2 -m benchmarks.parity OUT.json",
        "machine": fingerprint(
            library=facts[0].library if facts else None,
            library_path=facts[0].library_path if facts else None,
        ).model_dump(),
        "environment": allowed_env(os.environ),
        "ranks": [
            {"numa_node": fact.numa_node, "bound": fact.bound, "seconds": fact.seconds}
            for fact in facts
        ],
        "launches": options.launches,
        "launch_seconds": [run.seconds for run in default],
        "failed": bad,
        "parity": parity([run for run in alike if run.outcome == "ok"]),
        "spread": spread([run for run in default if run.outcome == "ok"]),
    }
    write_atomic(options.out, json.dumps(document, indent=1) + "\n")
    for name in ("parity", "spread"):
        print(f"{name}: {'passed' if document[name]['passed'] else 'MISSED'}")
    return 0 if not bad and document["parity"]["passed"] and document["spread"]["passed"] else 1


if __name__ == "__main__":
    sys.exit(run_module(main, sys.argv[1:]))
