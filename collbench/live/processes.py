"""The processes of this machine: who started whom, what they call themselves, what they map."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_COMPUTES = re.compile(r"[\w.-]{1,40}::(?:scheduler|Worker|EngineCore)(?![A-Za-z])")
"""Titles of processes that hold a GPU, at their start; vLLM's prefix can be configured."""
_TITLE = re.compile(r"[\w.-]{1,40}::\w")
_SERVES = re.compile(
    r"^(?:sglang::|VLLM::)|sglang\.launch_server|\bsglang serve\b|\bvllm serve\b|"
    r"vllm\.entrypoints|trtllm-serve|tensorrt_llm|llama-server",
    re.IGNORECASE,
)
"""Titles and command lines of servers."""
_HELPER = re.compile(
    r"multiprocessing\.resource_tracker|multiprocessing\.forkserver|multiprocessing\.semaphore|"
    r"^(?:/usr)?(?:/bin/)?(?:ba|da|z)?sh(?: |$)|^numactl |detokenizer|tokenizer_worker|"
    r"data_parallel_controller|VLLM::APIServer|VLLM::DPCoordinator|^tee(?: |$)|"
    r"compile_worker"
)
_MPI = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
_RANK_OF_TITLE = re.compile(r"(?<![A-Z])TP(\d+)")
LIBRARY = re.compile(r"/libnccl\.so[^/]*$|/libnccl-[^/]*\.so[^/]*$")


@dataclass(frozen=True, slots=True)
class Process:
    """One process as /proc shows it."""

    pid: int
    parent: int
    started: int
    """Clock ticks after boot."""
    uid: int
    name: str
    """``comm``: cut at 15 characters."""
    arguments: tuple[str, ...]
    """Command line, or the title written over it."""

    @property
    def title(self) -> str:
        """The command line as one text; a kernel thread's name in brackets."""
        return " ".join(self.arguments).strip() or f"[{self.name}]"

    @property
    def words(self) -> list[str]:
        """The words of the command line, also where a title made one text of it."""
        return self.title.split()

    @property
    def serves(self) -> bool:
        """Whether title or command line is one of a server."""
        return bool(_SERVES.search(self.title))

    @property
    def computes(self) -> bool:
        """Whether the title is one of a process that holds a GPU."""
        return bool(_COMPUTES.match(self.title))

    @property
    def titled(self) -> bool:
        """Whether its command line looks written over: then its block is not to be trusted."""
        if _TITLE.match(self.title):
            return True
        if len(self.arguments) > 1:
            return False
        try:
            program = os.readlink(f"/proc/{self.pid}/exe")  # noqa: PTH115  one system call
        except OSError:
            return True
        first = self.title.split(" ")[0].lstrip("-").rstrip(":")
        return os.path.basename(first)[:6] not in os.path.basename(program)  # noqa: PTH119

    @property
    def helps(self) -> bool:
        """Whether it is a process that never holds a GPU: a shell, a tracker, a front end."""
        return bool(_HELPER.search(self.title))


def read(pid: int) -> Process | None:
    """Return one process, or None if it is gone or a zombie."""
    folder = Path(f"/proc/{pid}")
    try:
        stat = (folder / "stat").read_text(errors="replace")
        raw = (folder / "cmdline").read_bytes()
        uid = folder.stat().st_uid
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if fields[0] in ("Z", "X"):
        return None
    arguments = tuple(raw.decode("utf-8", "replace").rstrip("\0").split("\0"))
    return Process(
        pid=pid,
        parent=int(fields[1]),
        started=int(fields[19]),
        uid=uid,
        name=name,
        arguments=arguments if raw.strip(b"\0") else (),
    )


def snapshot() -> dict[int, Process]:
    """Return every process that can be seen, by pid."""
    found = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208  a tenth of the time of iterdir here
        if entry.isdigit() and (process := read(int(entry))) is not None:
            found[process.pid] = process
    return found


def children(table: Mapping[int, Process]) -> dict[int, list[int]]:
    """Return pid -> pids of its children."""
    below: dict[int, list[int]] = {}
    for process in table.values():
        below.setdefault(process.parent, []).append(process.pid)
    return below


def descendants(pid: int, below: Mapping[int, list[int]]) -> list[int]:
    """Return everything below a process, itself first."""
    found = [pid]
    for known in found:
        found += [child for child in below.get(known, ()) if child not in found]
    return found


def ancestors(pid: int, table: Mapping[int, Process]) -> Iterator[Process]:
    """Yield the parent of a process, its parent, and so on, as far as they can be seen."""
    seen = {pid}
    process = table.get(pid)
    while process is not None and process.parent not in seen:
        seen.add(process.parent)
        process = table.get(process.parent)
        if process is not None:
            yield process


def rank_of(process: Process, environ: Mapping[str, str] | None) -> int | None:
    """Return a worker's rank: from its title, else from its launcher's variables."""
    if (process.serves or process.computes) and (match := _RANK_OF_TITLE.search(process.title)):
        return int(match[1])
    if process.computes:
        return 0
    for name in ("RANK", *_MPI, "SLURM_PROCID", "LOCAL_RANK"):
        value = (environ or {}).get(name, "")
        if value.isdigit() and len(value) < 7:
            return int(value)
    return None


def namespace_pids(pid: int) -> set[int]:
    """Return the pids of a process in all its pid namespaces, as its own logs may name it."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return {pid}
    line = next((line for line in text.splitlines() if line.startswith("NSpid:")), "")
    return {pid, *(int(word) for word in line.split()[1:])}
