"""Before anything is measured: which backend, enough GPUs, and nobody else on them."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from collbench.backends import SUPPORTED_DTYPES
from collbench.errors import CollbenchError
from collbench.pool.gpus import GpuUse, visible_gpus
from collbench.pool.mpi import check_mpi4py, find_mpirun

_SHM_WANTED = 64 << 20
"""NCCL's shared-memory segments: some 10 MiB a pair of ranks at the default buffer sizes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The backend and, in words, why."""

    backend: str
    why: str


def choose_backend(
    wish: str, nranks: int, gpus: Sequence[GpuUse], *, local_ranks: int | None = None
) -> Chosen:
    """Return the backend for a wish (``auto`` or a name), or say what is missing.

    Args:
        wish: auto, nccl, mpi or gloo.
        nranks: Ranks in all.
        gpus: Visible GPUs of this machine.
        local_ranks: Ranks on this machine; None: all.

    Raises:
        CollbenchError: what the backend needs is not there.
    """
    if wish == "auto":
        if gpus:
            chosen = Chosen(backend="nccl", why=f"{len(gpus)} CUDA devices are visible")
        else:
            chosen = Chosen(backend="mpi", why="no CUDA device is visible")
    elif wish in SUPPORTED_DTYPES or ":" in wish:
        chosen = Chosen(backend=wish, why="it was asked for")
    else:
        raise CollbenchError(
            f"--backend {wish}: there is none of this name",
            fix="auto, nccl, mpi, gloo, or package.module:factory",
        )
    here = nranks if local_ranks is None else local_ranks
    if chosen.backend == "nccl":
        if len(gpus) < here or not gpus:
            raise CollbenchError(
                f"backend nccl with {here} ranks on this machine needs {here} GPUs; "
                f"{len(gpus)} visible",
                fix=f"--nproc-per-node {len(gpus)}, or check CUDA_VISIBLE_DEVICES"
                if len(gpus) >= 2
                else "check CUDA_VISIBLE_DEVICES and `nvidia-smi`, or sweep `quickstart` (MPI)",
            )
    elif chosen.backend == "mpi":
        find_mpirun()
        check_mpi4py()
    most = max(8, 4 * (os.cpu_count() or 1))
    if chosen.backend in ("mpi", "gloo") and here > most:
        raise CollbenchError(
            f"{here} ranks on this machine: its {os.cpu_count()} CPUs take at most {most}; beyond "
            "that a time is the scheduler's",
            fix=f"--nproc-per-node {most} or fewer",
        )
    if nranks < 2:
        raise CollbenchError(
            f"{nranks} rank: a collective needs at least 2", fix="--nproc-per-node 2 or more"
        )
    return chosen


def check_gpus(gpus: Sequence[GpuUse], *, force: bool) -> list[str]:
    """Refuse GPUs that other processes use; return what is not known, and with `force` who.

    Raises:
        CollbenchError: a GPU is in use and `force` is not set.
    """
    unknown = [
        f"GPU {gpu.index}: the driver does not tell who uses it"
        + ("" if gpu.utilization_pct is None else f"; it is busy {gpu.utilization_pct} %")
        for gpu in gpus
        if not gpu.pids_known
    ]
    busy = [gpu for gpu in gpus if gpu.pids]
    if not busy:
        return unknown
    said = "; ".join(
        f"GPU {gpu.index} is used by process {', '.join(map(str, gpu.pids[:5]))}" for gpu in busy
    )
    if force:
        return [*unknown, f"{said}: times may be wrong (--force)"]
    raise CollbenchError(
        said, fix="stop these processes, choose others with CUDA_VISIBLE_DEVICES, or add --force"
    )


def check_shm() -> list[str]:
    """Return a warning where /dev/shm is too small for NCCL's or MPI's segments."""
    try:
        there = os.statvfs("/dev/shm")
    except OSError:
        return ["/dev/shm is missing: shared-memory transports will fail"]
    size = there.f_frsize * there.f_blocks
    if size >= _SHM_WANTED:
        return []
    return [
        f"/dev/shm has {size >> 20} MiB; shared-memory transports may fail below "
        f"{_SHM_WANTED >> 20} MiB (docker: --shm-size=1g or --ipc=host)"
    ]


class MachineLock:
    """One measurement at a time on a set of GPUs (or on the CPUs); freed when the process ends."""

    def __init__(self, gpus: Sequence[GpuUse]) -> None:
        self._files: list[IO[str]] = []
        try:
            for name in sorted(gpu.uuid for gpu in gpus) or ["cpus"]:
                self._take(name)
        except BaseException:
            self.release()
            raise

    def _take(self, name: str) -> None:
        safe = "".join(char if char.isalnum() or char == "-" else "_" for char in name)
        path = Path(tempfile.gettempdir()) / f"collbench-{safe}.lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise CollbenchError(
                f"{path}: the lock cannot be opened: {error.strerror}",
                fix="remove the file, or set TMPDIR to a folder of your own",
            ) from error
        file = os.fdopen(handle, "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = file.read(32).strip()
            file.close()
            raise CollbenchError(
                f"another collbench (process {owner or 'unknown'}) measures on {name}",
                fix="wait until it has ended: two at once would time each other",
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        self._files.append(file)

    def release(self) -> None:
        """Free the lock; the files stay, empty of meaning."""
        for file in self._files:
            file.close()
        self._files.clear()


def machine_gpus(backend: str) -> list[GpuUse]:
    """Return the GPUs a backend will use: the visible ones for NCCL, none for the others."""
    return visible_gpus() if backend == "nccl" else []
