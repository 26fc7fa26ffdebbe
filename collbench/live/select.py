"""Which processes are a server's workers.

By pid (a launcher's pid means the workers below it), by a pattern on the title, or without
either: what NVML sees on the GPUs, what has a worker's title, and ranks below mpirun.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from collbench.errors import CollbenchError
from collbench.live import memory, processes
from collbench.live.processes import Process

_MPI_LAUNCHER = re.compile(
    r"(?:^|/)(?:mpirun|mpiexec(?:\.\w+)?|prterun|prted|orted|hydra_\w+)(?: |$)"
)
_MEASURES = re.compile(r"(?:^|/|-m )collbench(?:\.worker|[ .](?:bench|sweep|check))(?: |$)")


class Selector:
    """Chooses workers among the processes of one snapshot."""

    def __init__(self, table: Mapping[int, Process], gpu_pids: Collection[int] = ()) -> None:
        own = {os.getpid(), *(p.pid for p in processes.ancestors(os.getpid(), table))}
        self.table = table
        self.gpu_pids = set(gpu_pids)
        self.below = processes.children(table)
        self.own = own
        """This process and what started it: their command lines hold the pattern itself."""
        self.hidden: set[int] = set()
        """Candidates whose memory map may not be read."""
        self.guessed: set[int] = set()
        """Workers taken for want of a better sign: processes without children."""
        self._maps: dict[int, bool] = {}

    def by_pid(self, pids: Iterable[int]) -> list[Process]:
        """Return the workers at or below the given pids.

        Raises:
            CollbenchError: a pid is not there.
        """
        found: dict[int, Process] = {}
        for pid in pids:
            if pid not in self.table:
                raise CollbenchError(
                    f"--pid: no process {pid}", fix="collbench status   shows the servers", code=1
                )
            found |= {p.pid: p for p in self._workers_below(pid)}
        return list(found.values())

    def by_match(self, pattern: str) -> list[Process]:
        """Return the workers at or below the processes whose title matches.

        Raises:
            CollbenchError: the pattern is not a regular expression.
        """
        if not pattern.strip():
            raise CollbenchError(
                "--match: empty: it would match every process",
                fix="for example --match 'sglang::scheduler'",
            )
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise CollbenchError(
                f"--match: {pattern!r} is not a regular expression: {error}",
                fix="for example --match 'sglang::scheduler'",
            ) from error
        matched = [
            p.pid for p in self.table.values() if p.pid not in self.own and compiled.search(p.title)
        ]
        found: dict[int, Process] = {}
        for pid in matched:
            inner = [p for p in processes.descendants(pid, self.below)[1:] if p in matched]
            workers = self._workers_below(pid)
            if inner and [p.pid for p in workers] == [pid]:
                continue
            found |= {p.pid: p for p in workers}
        return list(found.values())

    def all(self) -> list[Process]:
        """Return the workers of every server on this machine; our own launches are none."""
        ours = {
            pid
            for p in self.table.values()
            if _MEASURES.search(p.title)
            for pid in processes.descendants(p.pid, self.below)
        }
        roots = [
            p.pid
            for p in self.table.values()
            if p.serves or p.computes or _MPI_LAUNCHER.search(p.title)
        ]
        found: dict[int, Process] = {}
        for pid in roots:
            workers = self._workers_below(pid, strict=True)
            found |= {p.pid: p for p in workers if p.pid not in ours}
        for pid in self.gpu_pids - set(found) - self.own - ours:
            if pid in self.table and self._maps_library(pid):
                found[pid] = self.table[pid]
        return list(found.values())

    def server_of(self, process: Process) -> Process:
        """Return the process that stands for the server a worker belongs to.

        The outermost server or MPI launcher above it; where there is none, its parent.
        """
        best = process
        for parent in processes.ancestors(process.pid, self.table):
            if parent.pid == 1 or parent.pid in self.own:
                break
            launches = parent.serves or _MPI_LAUNCHER.search(parent.title)
            if launches or (best is process and not parent.helps):
                best = parent
        return best

    def _workers_below(self, pid: int, *, strict: bool = False) -> list[Process]:
        """Return the workers at or below a process.

        The first of these rules that finds any: on a GPU by NVML or by title; ranks of MPI; maps
        libnccl. Failing all: the processes without children, helpers left out (not if `strict`).
        """
        tree = [p for p in processes.descendants(pid, self.below) if p not in self.own]
        known = [self.table[p] for p in tree if p in self.table]
        rules: list[tuple[Callable[[Process], bool], Callable[[list[Process]], list[Process]]]] = [
            (lambda p: p.computes or (p.pid in self.gpu_pids and not p.helps), self._innermost),
            (self._is_mpi, _outermost),
            (lambda p: not p.helps and self._maps_library(p.pid), self._innermost),
        ]
        for rule, narrow in rules:
            chosen = [p for p in known if rule(p)]
            if chosen:
                return narrow(chosen)
        if strict:
            return []
        leaves = [p for p in known if not self.below.get(p.pid) and not p.helps] or known[:1]
        self.guessed |= {p.pid for p in leaves}
        return leaves

    def _is_mpi(self, process: Process) -> bool:
        if not any(
            _MPI_LAUNCHER.search(p.title) for p in processes.ancestors(process.pid, self.table)
        ):
            return False
        return not process.helps and not _MPI_LAUNCHER.search(process.title)

    def _maps_library(self, pid: int) -> bool:
        if pid not in self._maps:
            try:
                paths = {m.executable_name for m in memory.mappings(pid)}
                self._maps[pid] = any(processes.LIBRARY.search(path) for path in paths)
            except memory.UnreadableError as error:
                self._maps[pid] = False
                if error.why == "no_permission":
                    self.hidden.add(pid)
        return self._maps[pid]

    def _innermost(self, chosen: list[Process]) -> list[Process]:
        """Drop those with others below them.

        vLLM's engine core has workers of its own, and a launcher that imports torch maps NCCL too.
        """
        above = {p.pid for one in chosen for p in processes.ancestors(one.pid, self.table)}
        return [p for p in chosen if p.pid not in above]


def _outermost(chosen: list[Process]) -> list[Process]:
    """Drop what the others started: helpers of a rank are no ranks."""
    pids = {p.pid for p in chosen}
    return [p for p in chosen if p.parent not in pids]
