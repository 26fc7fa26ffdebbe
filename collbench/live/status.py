"""One look at a machine: GPUs, servers, whether a profile is live, what the logs last said."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collbench.errors import CollbenchError
from collbench.live import gpus, processes, server_log
from collbench.live.clock import started_at
from collbench.live.evidence import judge, look
from collbench.live.gpus import GpuState
from collbench.live.processes import Process
from collbench.live.select import Selector
from collbench.live.server_log import LogState
from collbench.live.text import printable
from collbench.live.verify import Worker
from collbench.live.wording import safe_title
from collbench.profiles.store import Reference, load

BUSY_PCT = 20
"""Use from which on a low link speed is no longer power saving."""


@dataclass(slots=True)
class Server:
    """One server with its workers."""

    process: Process
    workers: list[Worker] = field(default_factory=list)
    profile_id: str = ""
    """Profile the workers name, or the current one they were compared with."""
    state: str = "unknown"
    """live, different, unknown, none (no profile) or no_profile_here (nothing to compare with)."""
    log: LogState | None = None


@dataclass(slots=True)
class Status:
    """What one look found."""

    gpus: list[GpuState]
    driver: str | None
    gpu_note: str
    servers: list[Server]
    current: str | None


def take(log: Path | None = None) -> Status:
    """Look once. Works without a GPU and without permission for other users' processes."""
    table = processes.snapshot()
    states, driver, note = gpus.states()
    selector = Selector(table, {pid for state in states for pid in state.pids})
    current = _profile("current")
    servers: dict[int, Server] = {}
    for process in selector.all():
        server = selector.server_of(process)
        entry = servers.setdefault(server.pid, Server(server))
        seen = look(process, table)
        environ = seen.environ if seen.environ is not None else seen.start_values
        entry.workers.append(Worker(seen, processes.rank_of(process, environ), {}))
    for process in table.values():
        if process.serves and process.pid not in selector.own:
            top = selector.server_of(process)
            servers.setdefault(top.pid, Server(top))
    for entry in servers.values():
        _judge(entry, current)
        entry.log = server_log.of_file(log) if log else server_log.of_process(entry.process.pid)
    ordered = sorted(servers.values(), key=lambda s: (s.process.started, s.process.pid))
    return Status(states, driver, note, ordered, current.id if current else None)


def _judge(server: Server, current: Reference | None) -> None:
    """Compare a server's workers with the profile they name, else with the current one."""
    named = set()
    for worker in server.workers:
        environ = worker.seen.environ or worker.seen.start_values or {}
        named.add(environ.get("COLLBENCH_PROFILE", ""))
    marker = next(iter(named)) if len(named) == 1 else ""
    wanted = _profile(marker) if marker else current
    server.profile_id = printable(marker or (current.id if current else ""), 40)
    if not server.workers:
        server.state = "unknown"
        return
    if wanted is None:
        server.state = "no_profile_here" if marker else "none"
        return
    for worker in server.workers:
        worker.settings = {n: judge(worker.seen, n, v) for n, v in wanted.settings.items()}
    verdicts = {worker.verdict for worker in server.workers}
    absent = all(j.verdict == "absent" for w in server.workers for j in w.settings.values())
    if absent:
        server.state = "none"
    elif "different" in verdicts:
        server.state = "different"
    else:
        server.state = "unknown" if "unknown" in verdicts else "live"


def _profile(name: str) -> Reference | None:
    try:
        found = load(name)
    except CollbenchError:
        return None
    return found if found.profile is not None else None


def document(status: Status) -> dict[str, Any]:
    """Return the JSON document; secrets and control characters are out of every text."""
    return {
        "schema": 1,
        "command": "status",
        "exit_code": 0,
        "driver": status.driver,
        "gpus": [_plain_gpu(gpu) for gpu in status.gpus],
        "gpu_note": printable(status.gpu_note),
        "current": status.current,
        "servers": [_plain_server(server, status.gpus) for server in status.servers],
    }


def link_note(gpu: GpuState) -> str:
    """Return what a GPU's link says: width always counts, speed only under load."""
    if gpu.link_width and gpu.link_width_max and gpu.link_width < gpu.link_width_max:
        return "narrower than the card and slot allow"
    if not (gpu.link_gen and gpu.link_gen_max) or gpu.link_gen >= gpu.link_gen_max:
        return ""
    if gpu.idle:
        return "low link speed saves power while idle"
    if gpu.busy_pct is not None and gpu.busy_pct >= BUSY_PCT:
        return "below its speed under load"
    return ""


def _plain_gpu(gpu: GpuState) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "name": printable(gpu.name),
        "pci": gpu.pci,
        "memory_used_bytes": gpu.memory_used,
        "memory_total_bytes": gpu.memory_total,
        "busy_pct": gpu.busy_pct,
        "link_gen": gpu.link_gen,
        "link_gen_max": gpu.link_gen_max,
        "link_width": gpu.link_width,
        "link_width_max": gpu.link_width_max,
        "link_note": link_note(gpu),
        "pids": gpu.pids,
    }


def _plain_server(server: Server, states: list[GpuState]) -> dict[str, Any]:
    on_gpu = {pid: state.index for state in states for pid in state.pids}
    return {
        "pid": server.process.pid,
        "title": safe_title(server.process),
        "running_s": round(max(0.0, time.time() - started_at(server.process.started))),
        "profile": {"id": server.profile_id or None, "state": server.state},
        "workers": [
            {
                "pid": worker.seen.process.pid,
                "title": safe_title(worker.seen.process),
                "rank": worker.rank,
                "gpu": on_gpu.get(worker.seen.process.pid),
                "verdict": worker.verdict if worker.settings else None,
            }
            for worker in sorted(
                server.workers, key=lambda w: (w.rank is None, w.rank or 0, w.seen.process.pid)
            )
        ],
        "log": None
        if server.log is None
        else {"state": server.log.state, "text": server.log.text, "path": server.log.path},
    }
