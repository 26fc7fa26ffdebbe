"""Whether a profile is live in every worker of a server: the document of `collbench verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from collbench.knobs import registry
from collbench.knobs.servers import chosen_writes
from collbench.live import decode_path, findings, gpus, launchers, processes, rooted
from collbench.live.decode_path import DecodePath
from collbench.live.evidence import Judged, Seen, judge, look
from collbench.live.processes import Process
from collbench.live.select import Selector
from collbench.live.text import printable, shown_value
from collbench.live.wording import safe_title
from collbench.profiles import MARKERS

if TYPE_CHECKING:
    from collbench.readers.nccl_log import NcclLog

Overall = Literal["live", "different", "unknown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What `verify` looks for, and where."""

    values: Mapping[str, str]
    """All that the profile's env file sets, markers included."""
    profile_id: str = ""
    baseline: Mapping[str, str] = field(default_factory=dict)
    """What the profile was measured with because a server writes it; it does not decide."""
    library: str = ""
    """Communication library of the profile, ``NCCL 2.28.9``."""
    driver: str | None = None
    """Driver of the profile."""
    nranks: int = 0
    """Workers there have to be; 0: any number."""
    pids: Sequence[int] = ()
    match: str | None = None
    log: Path | None = None
    like: str = "auto"
    """Server whose own writes are known; ``auto``: as its title says."""


@dataclass(slots=True)
class Worker:
    """One worker with its verdicts."""

    seen: Seen
    rank: int | None
    settings: dict[str, Judged]
    files: dict[str, str] = field(default_factory=dict)
    """Setting that names a file -> what that path is inside the worker's root."""

    @property
    def verdict(self) -> Overall:
        """``different`` wins over ``unknown``; markers do not decide."""
        verdicts = {j.verdict for name, j in self.settings.items() if name not in MARKERS}
        if verdicts & {"differs", "absent"}:
            return "different"
        return "unknown" if "unknown" in verdicts or not verdicts else "live"


@dataclass(slots=True)
class Result:
    """What was found."""

    workers: list[Worker]
    path: DecodePath | None
    findings: list[dict[str, Any]]
    missing_ranks: int = 0
    guessed: bool = False
    """The workers have no sign of being some: no title, no GPU, no NCCL, no MPI."""

    @property
    def verdict(self) -> Overall:
        """``live`` only if every worker has every setting, and none is missing."""
        verdicts = {worker.verdict for worker in self.workers}
        if "different" in verdicts:
            return "different"
        return "unknown" if "unknown" in verdicts or self.missing_ranks or not verdicts else "live"


def verify(wanted: Wanted) -> Result:
    """Look at every worker once; without workers the result's list is empty.

    Raises:
        CollbenchError: a pid that is not there, a wrong pattern, a log that cannot be read.
    """
    table = processes.snapshot()
    states, driver, _ = gpus.states()
    selector = Selector(table, {pid for state in states for pid in state.pids})
    if wanted.pids:
        chosen = selector.by_pid(wanted.pids)
    elif wanted.match is not None:
        chosen = selector.by_match(wanted.match)
    else:
        chosen = selector.all()
    chosen.sort(key=lambda process: process.pid)
    seen = [look(process, table) for process in chosen]
    log: NcclLog | None = None
    notes: list[str] = []
    if wanted.log is not None:
        from collbench.live import logs

        log = logs.read(wanted.log)
        notes = logs.attach(log, wanted.log, seen)
    workers = [_worker(one, wanted) for one in seen if one.unreadable is None or not _gone(one)]
    workers.sort(key=lambda w: (w.rank is None, w.rank or 0, w.seen.process.pid))
    missing = max(0, wanted.nranks - len(workers)) if workers else 0
    server = selector.server_of(workers[0].seen.process) if workers else None
    guessed = any(worker.seen.process.pid in selector.guessed for worker in workers)
    result = Result(workers, _decode_path(log, wanted.log, server, workers), [], missing, guessed)
    result.findings = findings.of(
        result,
        wanted,
        writes=_writes(wanted, server),
        notes=notes,
        log=log,
        hidden=sorted(selector.hidden),
        driver=driver,
        way=launchers.way_of(workers[0].seen.process, table) if workers else None,
    )
    return result


def _gone(seen: Seen) -> bool:
    return seen.unreadable is not None and seen.unreadable.why == "gone"


def _worker(seen: Seen, wanted: Wanted) -> Worker:
    environ = seen.environ if seen.environ is not None else seen.start_values
    settings = {name: judge(seen, name, want) for name, want in wanted.values.items()}
    files: dict[str, str] = {}
    for name, want in wanted.values.items():
        entry = registry().get(name)
        if entry is not None and entry.hazard == "loads-code" and want.startswith("/"):
            files[name] = rooted.state_in_root(seen.process.pid, want)
    return Worker(seen, processes.rank_of(seen.process, environ), settings, files)


def _decode_path(
    log: NcclLog | None, path: Path | None, server: Process | None, workers: list[Worker]
) -> DecodePath | None:
    said = decode_path.from_log(log) if log is not None else None
    if said is not None or server is None or not server.serves:
        return said
    chosen = _by_options(server, workers)
    if chosen.nccl is None and path is not None:
        return decode_path.from_warnings(path) or chosen
    return chosen


def _by_options(server: Process, workers: list[Worker]) -> DecodePath:
    environ = workers[0].seen.environ or {}
    nranks = decode_path.tensor_parallel(server.words)
    return decode_path.from_process(server.words, environ, nranks)


def _writes(wanted: Wanted, server: Process | None) -> Mapping[str, Any]:
    like = wanted.like
    if like == "auto":
        title = server.title.lower() if server is not None else ""
        like = "sglang" if "sglang" in title else "vllm" if "vllm" in title else "none"
    return chosen_writes(like, server.words if server else ())


def document(result: Result, wanted: Wanted, exit_code: int) -> dict[str, Any]:
    """Return the JSON document; every text of another process is made printable."""
    return {
        "schema": 1,
        "command": "verify",
        "exit_code": exit_code,
        "verdict": result.verdict if result.workers else None,
        "profile": wanted.profile_id or None,
        "workers": [_plain_worker(worker) for worker in result.workers],
        "decode_path": None
        if result.path is None
        else {"nccl": result.path.nccl, "evidence": printable(result.path.evidence)},
        "findings": result.findings,
    }


def _plain_worker(worker: Worker) -> dict[str, Any]:
    process = worker.seen.process
    return {
        "pid": process.pid,
        "title": safe_title(process),
        "rank": worker.rank,
        "verdict": worker.verdict,
        "settings": {
            name: {
                "want": shown_value(name, judged.want),
                "have": shown_value(name, judged.have),
                "verdict": judged.verdict,
                "evidence": judged.evidence,
                "note": printable(judged.note),
            }
            for name, judged in worker.settings.items()
        },
        "libnccl": [printable(path) for path in worker.seen.libraries],
        "files": worker.files,
    }


def exit_code(result: Result) -> int:
    """Return 0 live, 3 different, 4 unknown, 1 no such process."""
    if not result.workers:
        return 1
    return {"live": 0, "different": 3, "unknown": 4}[result.verdict]
