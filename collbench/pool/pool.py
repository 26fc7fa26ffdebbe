"""One launch after the other, whatever the backend: the deciding side's view of the trial pool."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from collbench.errors import CollbenchError, Exit
from collbench.job import Job, Run
from collbench.lab import StuckError
from collbench.pool.forkserver import ForkServer
from collbench.pool.gpus import wait_until_idle
from collbench.pool.hosts import settle
from collbench.pool.merge import merge
from collbench.pool.mpi import MpiLauncher
from collbench.pool.supervised import Supervisor
from collbench.ranks import Launch, open_store
from collbench.record import now_utc

_TORCH_PRELOAD = ("torch", "torch.distributed", "numpy")
_BUSY_WAIT_S = 10.0
_HELLO_S = 120.0
"""The first launch: a cold disk and a driver that wakes cost more than any later one."""


class Pool:
    """Starts and ends the processes of launches.

    Every rank of the launcher makes one; rank 0 calls `launch` and `close`, the others `serve`.
    """

    def __init__(
        self,
        launch: Launch,
        backend: str,
        *,
        supervisor: Supervisor | None,
        mpi: MpiLauncher | None,
        workdir: Path,
    ) -> None:
        self.where = launch
        self.backend = backend
        self._supervisor = supervisor
        self._mpi = mpi
        self._workdir = workdir
        self._number = 0

    @property
    def nranks(self) -> int:
        """Ranks of every launch."""
        return self.where.world_size

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of every rank, by rank."""
        return () if self._supervisor is None else self._supervisor.store.hosts

    def serve(self) -> None:
        """Take part in rank 0's launches until it closes the pool; every rank but 0."""
        assert self._supervisor is not None
        try:
            self._supervisor.serve()
        finally:
            self._supervisor.store.leave()
            shutil.rmtree(self._workdir, ignore_errors=True)

    def launch(self, job: Job, *, env_file: Path | None = None) -> Run:
        """Run one launch in fresh processes; rank 0 only.

        Args:
            job: What to do; `job.nranks` must be the pool's.
            env_file: Start by exec through ``collbench run env_file``, as a server starts.

        Returns:
            The run; hung, died, wrong, refused and unsupported are outcomes.

        Raises:
            CollbenchError: no further launch can succeed.
        """
        return self.launch_parts(job, env_file=env_file)[0]

    def launch_parts(self, job: Job, *, env_file: Path | None = None) -> list[Run]:
        """Run one launch and return a run per entry of `job.communicators`; rank 0 only."""
        number, self._number = self._number, self._number + 1
        started, begin = now_utc(), time.monotonic()
        refusal = ""
        if self._mpi is not None:
            ends, timed_out, refusal = self._mpi.launch(number, job, env_file)
        else:
            assert self._supervisor is not None
            ends, timed_out = self._supervisor.lead(number, job, env_file)
            if any(end.exit_code is None for end in ends):
                run = Run(
                    job_id=job.job_id,
                    settings=dict(job.settings),
                    outcome="hung",
                    reason="its process could not be killed",
                    started=started,
                    seconds=time.monotonic() - begin,
                )
                raise _stuck("a GPU", run)
        seconds = time.monotonic() - begin
        runs = merge(job, ends, settings=job.settings, timed_out=timed_out)
        done = []
        for run in runs:
            if refusal and run.outcome == "died":
                run = replace(run, outcome="refused", reason=refusal)
            done.append(replace(run, started=started, seconds=seconds / len(runs)))
        if self.backend == "nccl" and any(run.outcome in ("hung", "died") for run in done):
            busy = wait_until_idle(_BUSY_WAIT_S)
            if busy:
                names = ", ".join(f"GPU {gpu.index} ({gpu.name})" for gpu in busy)
                raise _stuck(names, done[0])
        return done

    def hello(self) -> Run:
        """Start one launch that measures nothing, to learn which library it loads; rank 0 only.

        Raises:
            CollbenchError: the group does not come up; nothing can be measured here.
        """
        job = Job(job_id="hello", backend=self.backend, nranks=self.nranks, deadline_s=_HELLO_S)
        run = self.launch(job)
        if run.outcome != "ok" or not run.ranks:
            raise CollbenchError(
                f"nothing can be measured: the first launch {run.outcome}: {run.reason}",
                fix="see why with `collbench bench`; NCCL says more with NCCL_DEBUG=INFO",
                code=Exit.FAILED,
            )
        return run

    def close(self) -> None:
        """End the other ranks' service, and a launch that still runs; rank 0 only."""
        if self._supervisor is not None:
            # MPI launches are rank 0's alone: the others still wait for the first one.
            self._supervisor.end(0 if self._mpi is not None else self._number)
            self._supervisor.store.leave()
        if self._mpi is not None:
            self._mpi.close()
        shutil.rmtree(self._workdir, ignore_errors=True)


def _stuck(what: str, run: Run) -> StuckError:
    return StuckError(
        f"{what} is still busy {_BUSY_WAIT_S:g} s after its process was killed",
        fix="see `nvidia-smi`; reset the GPU or restart the machine, then go on with --resume",
        run=run,
    )


def open_pool(launch: Launch, backend: str, *, inherited: Mapping[str, str] | None = None) -> Pool:
    """Make this rank's pool; every rank must call it, from its main thread, before others start.

    Order matters: the fork server is forked before the control store starts its threads.

    Args:
        launch: This process's place.
        backend: nccl, gloo, mpi, or ``package.module:factory``.
        inherited: The environment that trials inherit; None: this process's.

    Raises:
        CollbenchError: MPI, torch or the launcher's store is missing.
    """
    environ = dict(os.environ if inherited is None else inherited)
    # c10d warns of every wait that times out, and waiting in turns is how ranks stay interruptible
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    workdir = Path(tempfile.mkdtemp(prefix=f"collbench-{os.getpid()}-"))
    if backend == "mpi":
        store = open_store(launch)
        hosts = settle(launch, store, environ)
        mpi = MpiLauncher(environ, hosts) if launch.rank == 0 else None
        supervisor = Supervisor(launch, store, None, workdir, environ, backend=backend)
        return Pool(launch, backend, supervisor=supervisor, mpi=mpi, workdir=workdir)
    try:
        import torch.distributed  # noqa: F401 - once here, for this process and the fork server
    except ImportError as error:
        raise CollbenchError(
            f"backend {backend} needs torch: {error}",
            fix="pip install torch (the one your server uses), or choose --backend mpi",
        ) from error
    server = ForkServer(_TORCH_PRELOAD)
    supervisor = Supervisor(launch, open_store(launch), server, workdir, environ, backend=backend)
    return Pool(launch, backend, supervisor=supervisor, mpi=None, workdir=workdir)
