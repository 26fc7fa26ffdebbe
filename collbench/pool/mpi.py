"""Launches of the MPI backend: rank 0 starts ``mpirun`` for each and reads every rank's file.

Each launch has a folder of its own in /dev/shm, for its files, its session folder (TMPDIR) and
Open MPI's shared memory: when the launch is over the folder is removed, so nothing is left there,
also after a kill. Folders of pools that were killed are swept by the next one.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.job import Job, to_plain
from collbench.pool.folders import LaunchFolder, sweep_leftovers
from collbench.pool.hosts import Hosts
from collbench.pool.merge import RankEnd
from collbench.pool.processes import Child
from collbench.pool.supervised import last_line
from collbench.ranks import without_launcher

_EXITED = re.compile(r"rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)", re.DOTALL)
_REFUSALS = (
    re.compile(r"\*\*\* (An error occurred in MPI_\w+.*)"),
    re.compile(
        r"^(?:\[[^\]]*\] )?(.*MPI_Init.*(?:fail|error|abort).*)$", re.IGNORECASE | re.MULTILINE
    ),
    re.compile(r"(Fatal error in \w*PMPI?_\w+.*)"),
    re.compile(r"(No components were able to be opened in the \w+ framework)"),
    re.compile(r"(.*requested component .* was not found.*)"),
)


@functools.cache
def find_mpirun() -> tuple[str, str]:
    """Return the path of mpirun and its kind, ``openmpi`` or ``mpich``.

    The one beside this Python comes first: it belongs to the MPI that mpi4py will load.

    Raises:
        CollbenchError: there is none, or it does not run.
    """
    beside = Path(sys.executable).parent / "mpirun"
    path = str(beside) if beside.exists() else shutil.which("mpirun")
    fix = "pip install 'collbench[mpi]' (mpi4py and an Open MPI that pip can install)"
    if path is None:
        raise CollbenchError("no mpirun found beside this Python or on the PATH", fix=fix)
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CollbenchError(f"{path} --version failed: {error}", fix=fix) from error
    text = said.stdout + said.stderr
    if "Open MPI" in text or "OpenRTE" in text or "prte" in text.lower():
        return path, "openmpi"
    if "HYDRA" in text or "mpich" in text.lower():
        return path, "mpich"
    raise CollbenchError(f"{path}: neither Open MPI nor MPICH: {text.strip()[:120]!r}", fix=fix)


def check_mpi4py() -> None:
    """Raise unless mpi4py is installed; does not import it.

    Raises:
        CollbenchError: it is not installed.
    """
    import importlib.util

    if importlib.util.find_spec("mpi4py") is None:
        raise CollbenchError("mpi4py is not installed", fix="pip install 'collbench[mpi]'")


class MpiLauncher:
    """Starts the processes of MPI launches; rank 0 only."""

    def __init__(self, inherited: Mapping[str, str], hosts: Hosts) -> None:
        check_mpi4py()
        self._mpirun, self.kind = find_mpirun()
        self._hosts = hosts
        self._inherited = hosts.environ(without_launcher(inherited))
        sweep_leftovers()

    def close(self) -> None:
        """Remove the folder that the hosts share."""
        if self._hosts.shared is not None:
            shutil.rmtree(self._hosts.shared, ignore_errors=True)

    def launch(
        self, number: int, job: Job, env_file: Path | None
    ) -> tuple[list[RankEnd], bool, str]:
        """Run one launch; return how every rank ended, whether time ran out, and a refusal."""
        with LaunchFolder(number) as folder:
            files = folder if self._hosts.shared is None else self._hosts.shared / str(number)
            try:
                files.mkdir(exist_ok=True)
                return self._launch(job, env_file, folder, files)
            finally:
                if files != folder:
                    shutil.rmtree(files, ignore_errors=True)

    def _launch(
        self, job: Job, env_file: Path | None, folder: Path, files: Path
    ) -> tuple[list[RankEnd], bool, str]:
        job_file, log = files / "job.json", folder / "log"
        job_file.write_text(json.dumps(to_plain(job)), encoding="utf-8")
        command = [
            *(self._mpirun, *self._hosts.arguments(self.kind, {**job.baseline, **job.settings})),
            *("-n", str(job.nranks), sys.executable, "-m", "collbench.worker"),
            *("--job", str(job_file), "--place", f"mpi:{files}"),
        ]
        environ = {**self._inherited, **self._own_environ(folder), **job.baseline}
        if env_file is None:
            environ |= job.settings
        else:
            command = [sys.executable, "-m", "collbench", "run", str(env_file), "--", *command]
        with Child(command, environ, log) as child:
            ended = child.wait(job.deadline_s)
            timed_out = ended is None
            if ended is None:
                child.kill()
                ended = child.wait(10.0)
        text = log.read_text(encoding="utf-8", errors="replace")[-65536:]
        ends = [
            RankEnd(
                text=_read(files / f"result.{rank}.json"),
                exit_code=ended.exit_code if ended else None,
                killed=timed_out,
                log_tail=last_line(log),
            )
            for rank in range(job.nranks)
        ]
        if not timed_out and ended is not None and ended.exit_code != 0:
            ends = _blame(ends, text)
            return ends, False, _refusal(text)
        return ends, timed_out, ""

    def _own_environ(self, folder: Path) -> dict[str, str]:
        own = {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
        if self.kind == "openmpi":
            if self._hosts.shared is None:  # elsewhere there is no such folder
                own["OMPI_MCA_btl_sm_backing_directory"] = str(folder)
            if os.geteuid() == 0:
                own |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return own


def _read(path: Path) -> str:
    for _ in range(2):
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            time.sleep(0.001)
    return ""


def _blame(ends: list[RankEnd], log: str) -> list[RankEnd]:
    """Give the death to the rank that mpirun names; it killed the others itself."""
    match = _EXITED.search(log)
    if not match or int(match[1]) >= len(ends):
        return ends
    guilty, signum = int(match[1]), int(match[2])
    return [
        replace(end, signal=signum, exit_code=-signum, log_tail="")
        if rank == guilty
        else replace(end, killed=True)
        for rank, end in enumerate(ends)
    ]


def _refusal(log: str) -> str:
    """Return the line with which MPI refused its settings, or an empty string."""
    for pattern in _REFUSALS:
        match = pattern.search(log)
        if match:
            return "".join(char for char in match[1].strip() if char.isprintable())[:200]
    return ""
