"""How fast, and in how much memory, an NCCL log of 200 MB is read.

    python -m benchmarks.log_reading --out results/MACHINE/log_reading.json

Three logs are written and read with `collbench inspect`, each in a process of its own: a server's
log with NCCL's calls and choices in it, starts of communicators alone (no two lines alike), and
lines that NCCL did not write. Exit code 1 if one takes more than 15 s or 300 MB.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collbench.files import write_atomic
from collbench.machine import fingerprint
from collbench.record import now_utc

LIMIT_S = 15.0
LIMIT_MB = 300.0


def server_log() -> Iterator[str]:
    """Yield what four vLLM workers print with NCCL_DEBUG_SUBSYS=COLL,TUNING."""
    yield "(Worker_TP0 pid=400) node-a:400:400 [0] NCCL INFO NCCL version 2.28.9+cuda12.9\n"
    for rank in range(4):
        yield started(rank, 4, rank, f"(Worker_TP{rank} pid=40{rank}) ")
    for i in itertools.count():
        for rank in range(4):
            yield (
                f"(Worker_TP{rank} pid=40{rank}) node-a:40{rank}:40{rank} [{rank}] NCCL INFO "
                f"AllReduce: opCount {i:x} sendbuff 0x7f00{i:08x} recvbuff 0x7f00{i:08x} count "
                "20480 datatype 9 op 0 root 0 comm 0x1d0e0a40 [nranks=4] stream 0x55d1c0a4e040\n"
            )
        yield (
            "(Worker_TP0 pid=400) node-a:400:400 [0] NCCL INFO AllReduce: "
            f"{40960 + i % 50 * 512} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..3}}\n"
        )
        yield f"(Worker_TP0 pid=400) INFO 03-17 06:02:45 [metrics.py:12] running {i} requests\n"


def started(rank: int, nranks: int, number: int, prefix: str = "") -> str:
    return (
        f"{prefix}node-a:40{rank}:40{rank} [{rank}] NCCL INFO ncclCommInitRank comm "
        f"0x{number:012x} rank {rank} nranks {nranks} cudaDev {rank} nvmlDev {rank} busId "
        f"{rank}a000 commId 0x{number:016x} - Init START\n"
    )


def starts() -> Iterator[str]:
    """Yield starts, variables and connections with a time stamp, no two lines alike."""
    for i in itertools.count():
        stamp = f"2026-02-11T07:41:03.{i:09d}Z "
        yield started(i % 8, 8, i // 64, stamp)
        head = f"{stamp}node-a:40{i % 8}:40{i % 8} [{i % 8}] NCCL INFO "
        yield f"{head}NCCL_PROTO set by environment to LL\n"
        yield f"{head}Channel {i % 32:02d}/0 : {i % 8}[{i % 8}] -> {-~i % 8}[0] via P2P/IPC\n"


def foreign() -> Iterator[str]:
    """Yield a server's own lines, one of NCCL in front."""
    yield "node-a:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda12.9\n"
    for i in itertools.count():
        yield f"INFO 03-17 06:02:45 [engine.py:31] request {i:032x} finished in {i % 977} ms\n"


LOGS = {"server": server_log, "starts": starts, "foreign": foreign}


def write(path: Path, lines: Iterator[str], size: int) -> int:
    """Write lines until the file is of `size` bytes; return its size."""
    done = 0
    with path.open("w") as file:
        while done < size:
            block = "".join(itertools.islice(lines, 4096))
            file.write(block)
            done += len(block)
    return done


def read(path: Path) -> dict[str, Any]:
    """Read a log with the product, in a process of its own; return time and memory."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "collbench", "inspect", "--json", str(path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    document = json.loads(process.stdout.read())
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    facts = document["files"][0]["facts"]
    return {
        "wall_s": round(time.monotonic() - begun, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": round(usage.ru_maxrss * 1024 / 1e6, 1),
        "nranks": facts.get("nranks"),
        "choices": len(facts.get("choices", ())),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Read NCCL logs of 200 MB.")
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="collbench-log-") as folder:
        for name, make in LOGS.items():
            path = Path(folder) / f"{name}.log"
            size = write(path, make(), asked.mb * 1_000_000)
            found[name] = {"bytes": size, **read(path)}
            path.unlink()
            print(name, json.dumps(found[name]), flush=True)
    good = all(one["wall_s"] <= LIMIT_S and one["peak_mb"] <= LIMIT_MB for one in found.values())
    if asked.out is not None:
        machine = fingerprint().model_dump(mode="json")
        document = {
            "created": now_utc(),
            "command": "python -m benchmarks.log_reading " + " ".join(sys.argv[1:]),
            "cpu": machine.get("cpu"),
            "python": machine.get("python"),
            "load_average": os.getloadavg(),
            "scheduler": {0: "other", 1: "fifo", 2: "round robin"}.get(os.sched_getscheduler(0)),
            "limit_s": LIMIT_S,
            "limit_mb": LIMIT_MB,
            "logs": found,
            "within": good,
        }
        write_atomic(asked.out, json.dumps(document, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
