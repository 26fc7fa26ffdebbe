"""One rank of one launch: binds itself, opens its backend, measures, writes its result file.

Two ways in. `run_rank` is called in a child that has just been forked from a server with torch
imported; ``python -m collbench.worker`` is started by exec, the way a server starts, or by mpirun.
Imports nothing but the standard library until the backend does: a rank of an MPI trial has a
tenth of a second.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from collbench.backends import Backend, Refused, Unsupported, mapped_library, open_backend
from collbench.job import Job, Outcome, Place, RankFacts, from_plain
from collbench.measure.results import ResultFile
from collbench.measure.session import Session
from collbench.numa import format_cpus

if TYPE_CHECKING:
    from collbench.numa import Binding


def run_rank(job: Job, place: Place) -> None:
    """Do everything of one rank of one launch and leave its result at ``place.result_path``.

    The settings must already stand in ``os.environ`` and nothing of CUDA or the communication
    library may be awake. Whatever goes wrong becomes the outcome in the file; nothing is raised.
    The caller leaves by ``os._exit``, soon: graphs and communicator are not torn down.
    """
    started = time.perf_counter()
    # A collection in the middle would be timed, and may free CUDA objects during a capture.
    gc.disable()
    results = ResultFile(place.result_path, place.rank)
    backend: Backend | None = None
    try:
        binding = None if _unbound(job) else _bind(place)
        bound = time.perf_counter()
        _require_library(job)
        if job.communicators:
            os.environ.update(job.communicators[0])
        backend = open_backend(job.backend, job, place)
        backend.seconds["bind"] = bound - started
        _measure(job, place, backend, binding, results, started)
    except Exception as error:
        explained = backend.explain(error) if backend is not None else error
        results.update(outcome=_outcome(explained), reason=_one_line(explained))
        import traceback

        traceback.print_exc()


def _measure(
    job: Job,
    place: Place,
    backend: Backend,
    binding: Binding | None,
    results: ResultFile,
    started: float,
) -> None:
    library, path = backend.library()
    warnings: list[str] = []
    if binding is not None:
        warnings += binding.warnings
        if backend.pci and binding.pci and backend.pci != binding.pci:
            warnings.append(
                f"rank {place.rank} was bound for GPU {binding.pci} but runs on {backend.pci}"
            )
    if job.nccl_lib and path and not os.path.samefile(path, job.nccl_lib):  # noqa: PTH121
        raise Unsupported(f"nccl_lib: {path} is mapped, not {job.nccl_lib}")
    facts = RankFacts(
        rank=place.rank,
        pid=os.getpid(),
        host=os.uname().nodename,
        device=backend.device,
        pci=backend.pci or (binding.pci if binding else None),
        numa_node=binding.numa_node if binding else None,
        cpus=format_cpus(os.sched_getaffinity(0)),
        bound=binding.bound if binding else "not_asked",
        memory_bytes=None,
        library=library,
        library_path=path,
        seconds=dict(backend.seconds),
    )
    session = Session(job, backend, results)
    for generation, settings in enumerate(job.communicators or ({},)):
        if generation:
            results.next_part()
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        if generation or settings:
            backend.reopen(generation + 1)
        results.update(facts=facts, env_seen=dict(settings), warnings=tuple(warnings))
        session.run()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    total = time.perf_counter() - started
    if results.part.facts is not None:
        facts = results.part.facts
        results.update(facts=replace(facts, seconds={**facts.seconds, "total": total}))


def preload() -> None:
    """Import and look up what every rank needs, in a fork server before it forks.

    torch must be imported already. Leaves CUDA and the communication library asleep.
    """
    import importlib

    from collbench.numa import gpu_addresses

    gpu_addresses()
    for name in ("backends.nccl", "backends.gloo", "measure.rounds"):
        importlib.import_module(f"collbench.{name}")


def _unbound(job: Job) -> bool:
    # CPU backends have no device to be near to, and mpirun binds by rules of its own.
    return not job.bind or job.backend in ("mpi", "gloo")


def _bind(place: Place) -> Binding:
    from collbench.numa import bind_to_gpu

    return bind_to_gpu(place.local_rank)


def _require_library(job: Job) -> None:
    """Map the library file that was asked for before torch maps its own.

    Raises:
        Unsupported: another one is mapped already, as in every process forked after torch.
    """
    if not job.nccl_lib:
        return
    import ctypes

    mapped = mapped_library("libnccl.so")
    if mapped is not None and not os.path.samefile(mapped, job.nccl_lib):  # noqa: PTH121
        raise Unsupported(
            f"nccl_lib: this process has mapped {mapped} already; start the launch by exec"
        )
    try:
        ctypes.CDLL(job.nccl_lib, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise Unsupported(f"nccl_lib: {error}") from error


def _outcome(error: Exception) -> Outcome:
    if isinstance(error, Refused):
        return "refused"
    return "unsupported" if isinstance(error, Unsupported) else "died"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())[:500]
    if isinstance(error, Refused | Unsupported):
        return text
    return f"{type(error).__name__}: {text}"


def _place_of_mpi(folder: str) -> Place:
    """Return the place of a rank that mpirun, srun or mpiexec started; it knows before MPI does."""

    def number(*names: str) -> int | None:
        return next((int(os.environ[name]) for name in names if name in os.environ), None)

    rank = number("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID") or 0
    size = number("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS") or 1
    local = number("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID") or 0
    local_size = number("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS") or size
    return Place(
        rank=rank,
        nranks=size,
        local_rank=local,
        local_world_size=local_size,
        result_path=f"{folder}/result.{rank}.json",
    )


def main(argv: list[str]) -> int:
    """Run ``--job JOB.json --place PLACE.json|mpi:DIR``; for the pool and launchers, not people."""
    options = dict(zip(argv[0::2], argv[1::2], strict=False))
    if set(options) != {"--job", "--place"}:
        sys.stderr.write("usage: python -m collbench.worker --job JOB.json --place PLACE|mpi:DIR\n")
        return 2
    with open(options["--job"], encoding="utf-8") as file:  # noqa: PTH123
        job = from_plain(Job, json.load(file))
    where = options["--place"]
    if where.startswith("mpi:"):
        place = _place_of_mpi(where.removeprefix("mpi:"))
    else:
        with open(where, encoding="utf-8") as file:  # noqa: PTH123
            place = from_plain(Place, json.load(file))
    run_rank(job, place)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    if "mpi4py" in sys.modules:
        from collbench.backends.mpi import finalize

        finalize()
    # The interpreter's teardown would cost every MPI launch a twentieth of a second.
    os._exit(code)
