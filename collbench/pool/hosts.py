"""Where the ranks of MPI launches run: rank 0's mpirun starts them on the hosts of the launch.

A launch that spans hosts (mpirun, torchrun or srun over several nodes) is measured over the same
hosts with as many ranks on each. Job and result files then lie in a folder that every host sees.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import CollbenchError, Exit
from collbench.ranks import ControlStore, Launch

ARGUMENTS = "COLLBENCH_MPIRUN_ARGS"
"""Words for mpirun that replace the binding and mapping we ask for, for example --bind-to none."""
SHARED = "COLLBENCH_SHARED"
"""A folder that every host sees; default: the working directory."""
_FORWARDED_BY_ITSELF = ("OMPI_", "PRTE_", "PMIX_")
_SEEN_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosts:
    """The hosts of a launch and the ranks on each, in the order of the ranks."""

    counts: dict[str, int]
    shared: Path | None = None
    """Folder that all of them see; None on one host."""
    words: tuple[str, ...] | None = None
    """Given by `COLLBENCH_MPIRUN_ARGS`."""

    def arguments(self, kind: str, variables: Iterable[str]) -> list[str]:
        """Return mpirun's arguments but for ``-n`` and the program.

        Args:
            kind: ``openmpi`` or ``mpich``.
            variables: Names to hand on to other hosts. MPICH hands on all, Open MPI its own.
        """
        many = len(self.counts) > 1
        places = ",".join(f"{host}:{count}" for host, count in self.counts.items())
        if kind == "mpich":
            return [*(["-hosts", places] if many else []), *(self.words or ())]
        # Both words are needed: with more ranks than cores Open MPI refuses to start, and its
        # --oversubscribe silently drops the binding of every rank.
        binding = ["--bind-to", "core:overload-allowed", "--map-by", "core:oversubscribe"]
        found = binding if self.words is None else list(self.words)
        if not many:
            return found
        found += ["--host", places]
        for name in sorted({"OMP_NUM_THREADS", *variables}):
            if not name.startswith(_FORWARDED_BY_ITSELF):
                found += ["-x", name]
        return found

    def environ(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the environment for mpirun.

        On one host nothing of Slurm is left: mpirun would spread the ranks over every node of the
        allocation, whatever the launch does.
        """
        if len(self.counts) > 1:
            return dict(inherited)
        return {name: text for name, text in inherited.items() if not name.startswith("SLURM_")}


def settle(launch: Launch, store: ControlStore, environ: Mapping[str, str]) -> Hosts:
    """Agree on the hosts and on a folder all of them see; every rank must call it.

    Raises:
        CollbenchError: the hosts share no folder, or the ranks of a host are not in a row.
    """
    counts = dict(Counter(store.hosts))
    words = tuple(shlex.split(environ[ARGUMENTS])) if environ.get(ARGUMENTS) else None
    if len(counts) < 2:
        return Hosts(counts=counts, words=words)
    if [host for host, count in counts.items() for _ in range(count)] != list(store.hosts):
        raise CollbenchError(
            f"ranks go round the hosts in turn ({', '.join(store.hosts[:4])} ...)",
            fix="start with the ranks of each host in a row: --map-by slot, srun -m block",
        )
    if launch.rank == 0:
        root = Path(environ.get(SHARED) or Path.cwd())
        try:
            shared = Path(tempfile.mkdtemp(prefix=".collbench-", dir=root))
        except OSError as error:
            raise CollbenchError(
                f"{root}: cannot be written to: {error.strerror}",
                fix=f"start in a folder all hosts share, or name one with {SHARED}",
            ) from error
        store.set("shared", str(shared))
    else:
        shared = Path(store.get("shared", timeout_s=_SEEN_S) or os.devnull)
    store.set(f"shared/{launch.rank}", "yes" if shared.is_dir() else "no")
    for rank, host in enumerate(store.hosts):
        if store.get(f"shared/{rank}", timeout_s=_SEEN_S) != "yes":
            if launch.rank == 0:
                shared.rmdir()
            raise CollbenchError(
                f"host {host} does not see the folder {shared} of host {store.hosts[0]}",
                fix=f"start in a folder all hosts share, or name one with {SHARED}",
                code=Exit.FAILED,
            )
    return Hosts(counts=counts, shared=shared, words=words)
