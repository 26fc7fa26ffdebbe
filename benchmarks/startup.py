"""How long commands take to start and to answer, on an idle machine.

    python -m benchmarks.startup --out startup.json

Wall time of whole processes, median and least of several runs, against the goals: 0.25 s for
``--help`` of every command and for light commands, 1 s for `verify` over eight workers and for
`status`. Exit code 1 if a median misses its goal.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from collbench.cli import COMMANDS
from collbench.files import write_atomic
from collbench.record import now_utc

TREE = Path(__file__).parent.parent / "tests" / "dist" / "live" / "tree.py"
SETTINGS = {"NCCL_PROTO": "LL", "NCCL_MIN_NCHANNELS": "16"}


def cpu_seconds() -> float:
    """Return the CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(words: list[str], runs: int) -> tuple[list[float], float]:
    """Return the wall times of several runs of a command, and the CPU time of one.

    Raises:
        SystemExit: a run failed; what was timed is not what was meant.
    """
    times = []
    spent = cpu_seconds()
    for _ in range(runs):
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "collbench", *words], capture_output=True, text=True, check=False
        )
        times.append(time.monotonic() - began)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
    return times, (cpu_seconds() - spent) / runs


def main() -> int:
    """Time every command and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}

    def measure(name: str, words: list[str], goal_s: float) -> None:
        times, spent = seconds(words, options.runs)
        results[name] = {
            "median_s": round(median(times), 3),
            "least_s": round(min(times), 3),
            "cpu_s": round(spent, 3),
            "goal_s": goal_s,
        }
        print(f"{name:28} {median(times):.3f} s (least {min(times):.3f}, CPU {spent:.3f})")

    for command in ("", *COMMANDS):
        measure(f"{command} --help".strip(), [*command.split(), "--help"], 0.25)
    with tempfile.TemporaryDirectory() as folder:
        env_file = Path(folder) / "profile.env"
        env_file.write_text("".join(f"{n}={v}\n" for n, v in SETTINGS.items()))
        measure("run ENV -- true", ["run", str(env_file), "--", "true"], 0.25)
        measure("profile lint ENV", ["profile", "lint", str(env_file)], 0.25)
        spec = {"workers": 8, "method": "fork", "title": "VLLM::Worker_TP{rank}"}
        tree = subprocess.Popen(
            [sys.executable, str(TREE), json.dumps(spec)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **SETTINGS},
        )  # fmt: skip
        assert tree.stdout is not None
        tree.stdout.readline()
        measure("verify, 8 workers", ["verify", str(env_file), "--pid", str(tree.pid)], 1.0)
        measure("status", ["status"], 1.0)
        tree.communicate()
    missed = [name for name, result in results.items() if result["median_s"] > result["goal_s"]]
    if options.out is not None:
        command = ["python", "-m", "benchmarks.startup", *sys.argv[1:]]
        record = {
            "schema": 1,
            "kind": "startup",
            "created": now_utc(),
            "command": command,
            "python": sys.version.split()[0],
            "runs": options.runs,
            "missed": missed,
            "results": results,
        }
        write_atomic(options.out, json.dumps(record, indent=1) + "\n")
    print("missed: " + (", ".join(missed) if missed else "none"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
