"""One verdict per setting per worker, from the strongest evidence at hand.

Order: what NCCL itself printed, the worker's memory, its untitled environ block, its launcher,
configuration. Weak evidence never refutes: a block shows the start of a process, which may have
changed since, so from it a setting is live or unknown, and what a launcher or a file holds only
says what was meant to arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from collbench.live import conf_files, environ_block, libraries, memory, processes
from collbench.live.memory import UnreadableError
from collbench.live.processes import Process

Verdict = Literal["live", "differs", "absent", "unknown"]
Source = Literal["log", "memory", "environ", "launcher", "config"]


@dataclass(frozen=True, slots=True)
class Judged:
    """One setting in one worker."""

    want: str
    have: str | None
    verdict: Verdict
    evidence: Source | None
    """Where `have` is from; None where nothing was seen."""
    note: str = ""


@dataclass(slots=True)
class Seen:
    """What was seen of one process, by each means."""

    process: Process
    environ: dict[str, str] | None = None
    """From its memory."""
    block: environ_block.Block | None = None
    launcher: dict[str, str] = field(default_factory=dict)
    """Environment of the nearest ancestor that shows one."""
    launcher_pid: int | None = None
    conf: dict[str, conf_files.ConfValue] = field(default_factory=dict)
    logged: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Variable -> (value, line) that this process's NCCL printed."""
    libraries: list[str] = field(default_factory=list)
    unreadable: UnreadableError | None = None
    """Why its memory could not be read."""

    @property
    def start_values(self) -> dict[str, str] | None:
        """Values at its start, from a block that nothing was written over; else None.

        A process title makes a block doubtful even where all of it is left: if the first
        variable was changed before, the clearing stops at once.
        """
        if self.block is None or not self.block.whole:
            return None
        if self.process.titled and self.block.values.get("SPT_NOENV") != "1":
            return None
        return self.block.values


def look(process: Process, table: Mapping[int, Process]) -> Seen:
    """Look at a process by every means; what cannot be seen stays empty, with the reason."""
    seen = Seen(process)
    try:
        maps = memory.mappings(process.pid)
        seen.libraries = libraries.nccl_paths(maps)
        seen.environ = memory.read_environ(process.pid, maps)
        seen.conf = conf_files.effective(seen.environ, process.pid)
    except UnreadableError as error:
        seen.unreadable = error
    if seen.environ is None:
        try:
            seen.block = environ_block.read(process.pid)
        except UnreadableError:
            seen.block = None
        _look_at_launcher(seen, table)
    return seen


def _look_at_launcher(seen: Seen, table: Mapping[int, Process]) -> None:
    for parent in processes.ancestors(seen.process.pid, table):
        if parent.pid == 1:
            return
        try:
            seen.launcher = memory.read_environ(parent.pid)
        except UnreadableError:
            try:
                block = environ_block.read(parent.pid)
            except UnreadableError:
                continue
            if not block.whole:
                continue
            seen.launcher = block.values
        seen.launcher_pid = parent.pid
        return


def judge(seen: Seen, name: str, want: str) -> Judged:
    """Return the verdict on one setting in one worker."""
    if name in seen.logged:
        have, line = seen.logged[name]
        same = same_value(want, have)
        return Judged(want, have, "live" if same else "differs", "log", f"line {line}")
    if seen.environ is not None:
        if name in seen.environ:
            have = seen.environ[name]
            return Judged(want, have, "live" if have == want else "differs", "memory")
        if name in seen.conf:
            entry = seen.conf[name]
            return Judged(want, entry.value, "unknown", "config", f"{entry.path}:{entry.line}")
        return Judged(want, None, "absent", "memory")
    start = seen.start_values
    if start is not None and name in start:
        if start[name] == want:
            return Judged(want, want, "live", "environ")
        note = "value at its start; may have changed"
        return Judged(want, start[name], "unknown", "environ", note)
    if name in seen.launcher:
        note = f"in its launcher {seen.launcher_pid}: only what was to be handed down"
        return Judged(want, seen.launcher[name], "unknown", "launcher", note)
    if start is not None:
        note = "not there at its start; may have been set since"
        return Judged(want, None, "unknown", "environ", note)
    return Judged(want, None, "unknown", None, str(seen.unreadable or ""))


def same_value(want: str, printed: str) -> bool:
    """Return whether NCCL printed the wanted value; it prints numbers as it read them."""
    if want.strip().lower() == printed.strip().lower():
        return True
    try:
        return int(want, 0) == int(printed, 0)
    except ValueError:
        return False
