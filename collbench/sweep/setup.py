"""From the command line to what a sweep needs: spec, backend, ranks, folder, storage."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.front import default_nproc
from collbench.knobs import registry
from collbench.knobs.servers import server_writes
from collbench.pool.gpus import GpuUse, visible_gpus
from collbench.preflight import Chosen, choose_backend
from collbench.record import now_utc
from collbench.space.spec import Spec, load_spec
from collbench.sweep.arguments import Arguments

_NOT_PINNED = frozenset({"COLLBENCH_PROFILE", "SPT_NOENV", "OMP_NUM_THREADS"})
"""Markers, and what torchrun sets for its own workers: a server's threads are not our business."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """A validated request."""

    spec: Spec
    chosen: Chosen
    gpus: list[GpuUse]
    """Visible GPUs that the launches use; empty for MPI."""
    results: Path
    """Root of the results."""


def prepare(given: Arguments, *, local_ranks: int, nranks: int) -> Setup:
    """Validate a request; needs neither torch nor MPI awake.

    Raises:
        CollbenchError: the sweep file, an option, or what the backend needs is wrong or missing.
    """
    gpus = visible_gpus()
    if given.backend == "gloo":
        raise CollbenchError(
            "backend gloo can be timed (collbench bench) but has nothing to tune",
            fix="pip install 'collbench[mpi]' and sweep with --backend mpi",
        )
    if given.spec is None:
        wanted = "nccl" if given.backend == "nccl" or (given.backend == "auto" and gpus) else "mpi"
        spec = load_spec("decode" if wanted == "nccl" else "quickstart")
    else:
        spec = load_spec(given.spec)
    if given.backend not in ("auto", spec.backend):
        raise CollbenchError(
            f"--backend {given.backend}: {spec.path} is a sweep of backend {spec.backend!r}",
            fix=f"leave --backend out, or choose another sweep than {spec.name}",
        )
    chosen = choose_backend(spec.backend, nranks, gpus, local_ranks=local_ranks)
    if given.backend == "auto":
        seen = f"{len(gpus)} CUDA devices are visible" if gpus else "no CUDA device is visible"
        why = seen if given.spec is None else f"{spec.name} is for it; {seen}"
        chosen = Chosen(backend=chosen.backend, why=why)
    results = given.out or Path(os.environ.get("COLLBENCH_RESULTS") or "results")
    _writable(results)
    return Setup(
        spec=spec,
        chosen=chosen,
        gpus=gpus if chosen.backend == "nccl" else [],
        results=results,
    )


def _writable(folder: Path) -> None:
    """Refuse a folder that cannot be written, before anything is measured.

    Tried, not asked: the superuser may write anywhere but in /proc.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise CollbenchError(
            f"--out {folder}: cannot be written: {error.strerror}",
            fix="give another folder with --out",
        ) from error


def pinned_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the registered variables that stand in an environment: fixed, under every launch."""
    known = registry()
    return {n: v for n, v in sorted(environ.items()) if n in known and n not in _NOT_PINNED}


def like_baseline(server: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what ``--like`` puts under default and candidates alike.

    What is pinned stays where the server would keep it, and goes where the server overwrites it.

    Raises:
        CollbenchError: the server is not in the table.
    """
    return {
        name: write.value
        for name, write in server_writes(server).items()
        if write.when == "overwrites" or name not in environ
    }


def command_line(arguments: Sequence[str], hosts: Sequence[str], nranks: int) -> tuple[str, ...]:
    """Return the command that would start this sweep again, with as many ranks.

    Over several hosts the launcher's own words are not known: it starts the module.

    Args:
        arguments: Of the module.
        hosts: Of the ranks; empty on one machine.
        nranks: Ranks.
    """
    if len(set(hosts)) > 1:
        return ("python", "-m", "collbench.sweep", *arguments)
    ranks = () if nranks == default_nproc() else ("--nproc-per-node", str(nranks))
    return ("collbench", "sweep", *ranks, *arguments)


def storage_of(given: Arguments, spec: Spec, machine_folder: Path) -> tuple[str, Path]:
    """Return the storage's URL and the stem of the study's files.

    A new sweep begins a new study file; ``--resume`` goes on with the newest of this sweep.

    Raises:
        CollbenchError: there is nothing to resume.
    """
    folder = machine_folder / "studies"
    stamp = now_utc().replace(":", "").replace("-", "")
    stem = folder / f"{spec.name}-{stamp}"
    if given.storage is not None:
        return given.storage, stem
    if given.resume:
        found = sorted(folder.glob(f"{spec.name}-*.db"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise CollbenchError(
                f"--resume: no study of {spec.name!r} in {folder}",
                fix="start without --resume, or name the results with --out or --storage",
            )
        stem = found[-1].with_suffix("")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CollbenchError(
            f"{folder}: cannot be made: {error.strerror}", fix="give another folder with --out"
        ) from error
    return f"sqlite:///{stem.with_suffix('.db').resolve()}", stem
