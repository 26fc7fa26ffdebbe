"""One rank of `bench` under a launcher: rank 0 measures and tells, the others serve."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from collbench.bench.launches import Launcher, measure
from collbench.bench.request import Asked, Request, ask
from collbench.bench.table import document, exit_code, print_report, to_csv
from collbench.exports import check_suffix, write_times
from collbench.files import write_atomic
from collbench.preflight import (
    MachineLock,
    check_gpus,
    check_shm,
    choose_backend,
    machine_gpus,
)
from collbench.profiles import machine_slug
from collbench.ranks import detect
from collbench.record import RunRecord, save


def run_rank(request: Request, command: Sequence[str]) -> int:
    """Run this rank's part of a bench and return the command's exit code.

    Raises:
        CollbenchError: the request is wrong, or nothing can be measured here.
    """
    from collbench.pool import open_pool

    launch = detect()
    gpus = machine_gpus("nccl") if request.backend in ("auto", "nccl") else []
    chosen = choose_backend(request.backend, launch.world_size, gpus)
    asked = ask(request, backend=chosen.backend, nranks=launch.world_size)
    pool = open_pool(launch, chosen.backend)
    if launch.rank != 0:
        pool.serve()
        return 0
    try:
        used = machine_gpus(chosen.backend)
        lock = MachineLock(used)
        try:
            warnings = [*check_gpus(used, force=request.force), *check_shm()]
            writable(folder_of(request))
            if request.times_file:
                check_suffix(Path(request.times_file))
            _say(f"backend {chosen.backend}: {chosen.why}")
            return _measure_and_tell(request, asked, pool, command, warnings)
        finally:
            lock.release()
    finally:
        pool.close()


def _measure_and_tell(
    request: Request,
    asked: Asked,
    launcher: Launcher,
    command: Sequence[str],
    warnings: Sequence[str],
) -> int:
    from rich.console import Console

    record = measure(asked, launcher, command=command, say=_say, warnings=warnings)
    path = record_path(folder_of(request), record)
    save(path, record)
    text = json.dumps(document(record, str(path)), allow_nan=False) + "\n"
    if request.json_file:
        write_atomic(Path(request.json_file), text)
    if request.csv_file:
        write_atomic(Path(request.csv_file), to_csv(record))
    if request.times_file:
        write_times(record, Path(request.times_file))
    if request.as_json:
        sys.stdout.write(text)
    else:
        width = None if sys.stdout.isatty() else 80
        print_report(record, str(path), Console(file=sys.stdout, width=width))
    sys.stdout.flush()
    return exit_code(record)


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def folder_of(request: Request) -> Path:
    """Return the folder that records go to."""
    return Path(request.out or os.environ.get("COLLBENCH_RESULTS") or "results")


def record_path(folder: Path, record: RunRecord) -> Path:
    """Return a path for a record that no other one has."""
    machine = machine_slug(record.machine.model_dump())
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    path = folder / machine / f"bench-{stamp}.json"
    number = 1
    while path.exists():
        number += 1
        path = folder / machine / f"bench-{stamp}-{number}.json"
    return path


def writable(folder: Path) -> None:
    """Raise unless files can be made in `folder`, before anything is measured for them.

    Raises:
        CollbenchError: it cannot be made or written to.
    """
    probe = folder / ".collbench-writable"
    write_atomic(probe, "")
    probe.unlink(missing_ok=True)
