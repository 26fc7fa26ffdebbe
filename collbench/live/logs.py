"""Which lines of an NCCL log belong to which running worker."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.live import processes
from collbench.live.clock import started_at
from collbench.live.evidence import Seen
from collbench.readers import UnreadableError
from collbench.readers.nccl_log import NcclLog, read_log


def read(path: Path) -> NcclLog:
    """Read a server's log.

    Raises:
        CollbenchError: it cannot be read.
    """
    try:
        return read_log(path)
    except UnreadableError as error:
        raise CollbenchError(f"--log: {path}: {error}", fix="check the path") from error


def attach(log: NcclLog, path: Path, workers: Iterable[Seen]) -> list[str]:
    """Give each worker the variables that its own NCCL printed; return why some got none.

    A log that is older than the process, or a process that has NCCL's log switched off, proves
    nothing. Nor does a variable printed with two values: then the log holds several runs or
    communicators.
    """
    notes = []
    written = path.stat().st_mtime
    for seen in workers:
        pid = seen.process.pid
        if written < started_at(seen.process.started):
            notes.append(f"pid {pid}: the log was last written before the process started")
            continue
        if seen.environ is not None and not seen.environ.get("NCCL_DEBUG"):
            notes.append(f"pid {pid}: NCCL_DEBUG is not set in it, so the log is not its own")
            continue
        names = processes.namespace_pids(pid)
        sources = [source for source in log.env_of if source.pid in names]
        if len({(source.host, source.pid) for source in sources}) > 1:
            notes.append(f"pid {pid}: several processes of the log have this number")
            continue
        for source in sources:
            for name, printed in log.env_of[source].items():
                if not printed.others:
                    seen.logged.setdefault(name, (printed.value, printed.line))
    return notes
