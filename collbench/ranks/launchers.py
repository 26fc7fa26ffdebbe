"""Which launcher started this process, and which rank it is: environment variables only.

torchrun, Open MPI's and MPICH's mpirun, srun, or variables set by hand (env://). Launchers nest:
torchrun inside a step of Slurm is the normal way on a cluster, mpirun inside sbatch too; the
innermost one counts. Two that contradict each other are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from collbench.errors import CollbenchError

Launcher = Literal["torchrun", "mpirun", "srun", "env", "none"]
"""``env``: RANK and WORLD_SIZE set by hand, as for torch's ``env://``."""

_LAUNCHER_PREFIXES = (
    "TORCHELASTIC_",
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_",
    "OMPI_WORLD_",
    "OMPI_APP_CTX_",
    "OMPI_FILE_",
    "OMPI_FIRST_",
    "OMPI_NUM_APP_",
    "OMPI_ARGV",
    "OMPI_COMMAND",
    "OMPI_MCA_ess_",
    "OMPI_MCA_orte_",
    "PMIX_",
    "PMI_",
    "PMI2_",
    "PRTE_MCA_prte_ess_",
    "HYDI_",
    "MPI_LOCAL",
)
_LAUNCHER_NAMES = frozenset(
    {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_NAME",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "OMPI_LIBDIR_LOC",
        "OMPI_TOOL_NAME",
        "OMPI_VERSION",
        "OMPI_MCA_PREFIXES",
        "OMPI_MCA_cpu_type",
        "OMPI_MCA_initial_wdir",
        "OMPI_MCA_num_procs",
        "PRTE_LAUNCHED",
        "PRTE_SHARED_FS",
        "COLLBENCH_FRONT",
        "COLLBENCH_TORCHRUN",
    }
)
_STEP_PREFIXES = ("SLURM_STEP", "SLURM_PMI", "SLURM_CPU_BIND", "SLURM_DISTRIBUTION")
_STEP_NAMES = frozenset(
    {
        "SLURM_GTIDS",
        "SLURM_LAUNCH_NODE_IPADDR",
        "SLURM_LOCALID",
        "SLURM_MPI_TYPE",
        "SLURM_NODEID",
        "SLURM_PROCID",
        "SLURM_SRUN_COMM_HOST",
        "SLURM_SRUN_COMM_PORT",
        "SLURM_TASK_PID",
        "SLURM_UMASK",
    }
)
_SINGLE = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what a launcher put there for its own processes.

    A trial's processes form a group of their own: with TORCHELASTIC_USE_AGENT_STORE inherited,
    its rank 0 would become a client of a store that nobody hosts, and hang. Of Slurm only the
    variables of the step go: those of the allocation stay, because an mpirun of a trial finds its
    nodes in them. Where srun held a step's CPUs, an srun that mpirun starts for its daemons must
    share them (SLURM_OVERLAP), or it would wait for ever for the step it runs in.
    """
    kept = {name: value for name, value in environ.items() if not _of_launcher(name)}
    if "SLURM_STEP_ID" in environ:
        kept.setdefault("SLURM_OVERLAP", "1")
    return kept


def _of_launcher(name: str) -> bool:
    if name.startswith("PMIX_MCA_"):  # set by people, like OMPI_MCA_ and HYDRA_
        return False
    return (
        name in _LAUNCHER_NAMES
        or name in _STEP_NAMES
        or name.startswith(_LAUNCHER_PREFIXES + _STEP_PREFIXES)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """What a launcher told this process about itself."""

    launcher: Launcher
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int = 0
    nnodes: int = 1
    """1 where the launcher does not tell (mpirun); the store's `hosts` do."""


def under_launcher(environ: Mapping[str, str]) -> bool:
    """Return whether a launcher on this machine started this process and must outlive it.

    Killed by SIGKILL, torchrun and mpirun leave their ranks alive; Slurm ends its tasks itself.
    """
    marks = ("TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID")
    return any(mark in environ for mark in marks)


def rank_of(environ: Mapping[str, str]) -> int:
    """Return this process's rank for a message, 0 where the environment makes no sense."""
    try:
        return detect(environ).rank
    except CollbenchError:
        text = environ.get("RANK") or environ.get("OMPI_COMM_WORLD_RANK") or "0"
        return int(text) if text.isdigit() else 0


def detect(environ: Mapping[str, str] | None = None) -> Launch:
    """Return this process's place, from the environment of whichever launcher started it.

    Raises:
        CollbenchError: a variable is missing or no number, a rank lies outside its world, or two
            launchers contradict each other.
    """
    env = os.environ if environ is None else environ
    mpi = _mpirun(env)
    if "TORCHELASTIC_RUN_ID" in env:
        torchrun = _torch(env, "torchrun")
        if mpi is not None and mpi.world_size != torchrun.nnodes:
            raise _contradiction(
                f"torchrun ({torchrun.world_size} ranks on {torchrun.nnodes} nodes)",
                f"mpirun ({mpi.world_size} ranks)",
                "start torchrun from mpirun with one mpirun rank per node and the same --nnodes, "
                "or use one of the two",
            )
        return torchrun
    by_hand = _torch(env, "env") if "RANK" in env and "WORLD_SIZE" in env else None
    inner = mpi or _srun(env)
    if inner is None:
        return by_hand or Launch(
            launcher="none", rank=0, world_size=1, local_rank=0, local_world_size=1
        )
    if by_hand is not None and (by_hand.rank, by_hand.world_size) != (inner.rank, inner.world_size):
        raise _contradiction(
            f"RANK={by_hand.rank} WORLD_SIZE={by_hand.world_size}",
            f"{inner.launcher} (rank {inner.rank} of {inner.world_size})",
            "unset RANK and WORLD_SIZE, or start without the other launcher",
        )
    return inner


def _torch(env: Mapping[str, str], launcher: Launcher) -> Launch:
    world = _int(env, "WORLD_SIZE")
    local_world = _int(env, "LOCAL_WORLD_SIZE", default=1 if launcher == "torchrun" else world)
    return _checked(
        Launch(
            launcher=launcher,
            rank=_int(env, "RANK"),
            world_size=world,
            local_rank=_int(
                env, "LOCAL_RANK", default=0 if launcher == "torchrun" else _int(env, "RANK")
            ),
            local_world_size=local_world,
            node_rank=_int(env, "GROUP_RANK", default=0),
            nnodes=_int(env, "GROUP_WORLD_SIZE", default=max(1, world // max(1, local_world))),
        )
    )


def _mpirun(env: Mapping[str, str]) -> Launch | None:
    """Open MPI's mpirun, or MPICH's (hydra).

    The process manager of Slurm (``srun --mpi=pmi2``) sets PMI_RANK too, but not MPI_LOCALRANKID.
    """
    found = []
    if "OMPI_COMM_WORLD_RANK" in env:
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
        found.append([_int(env, f"OMPI_COMM_WORLD_{name}") for name in names])
    if "MPI_LOCALRANKID" in env and "PMI_RANK" in env:
        names = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
        found.append([_int(env, name) for name in names])
    if not found:
        return None
    if len(found) == 2 and found[0] != found[1]:
        raise _contradiction(
            f"Open MPI's mpirun (rank {found[0][0]} of {found[0][1]})",
            f"MPICH's (rank {found[1][0]} of {found[1][1]})",
            "start with the mpirun of one of them only",
        )
    rank, world, local_rank, local_world = found[0]
    return _checked(
        Launch(
            launcher="mpirun",
            rank=rank,
            world_size=world,
            local_rank=local_rank,
            local_world_size=local_world,
        )
    )


def _srun(env: Mapping[str, str]) -> Launch | None:
    """A task of a step; the batch script itself has SLURM_PROCID too, but no step."""
    if "SLURM_STEP_ID" not in env or "SLURM_PROCID" not in env:
        return None
    tasks = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in env else "SLURM_NTASKS"
    nodes = "SLURM_STEP_NUM_NODES" if "SLURM_STEP_NUM_NODES" in env else "SLURM_NNODES"
    world, node = _int(env, tasks, default=1), _int(env, "SLURM_NODEID", default=0)
    per_node = tasks_per_node(
        env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or str(world)
    )
    return _checked(
        Launch(
            launcher="srun",
            rank=_int(env, "SLURM_PROCID"),
            world_size=world,
            local_rank=_int(env, "SLURM_LOCALID", default=0),
            local_world_size=per_node[node] if node < len(per_node) else per_node[-1],
            node_rank=node,
            nnodes=_int(env, nodes, default=len(per_node)),
        )
    )


def tasks_per_node(text: str) -> list[int]:
    """Return Slurm's short form as one number per node: ``2(x3),1`` is ``[2, 2, 2, 1]``.

    Raises:
        CollbenchError: it is not of that form.
    """
    counts: list[int] = []
    for part in text.split(","):
        match = _SINGLE.fullmatch(part.strip())
        if match is None or int(match[2] or 1) > 100_000:
            raise CollbenchError(
                f"environment: SLURM_TASKS_PER_NODE={text!r} is not of the form 2(x3),1",
                fix="start with srun, or torchrun inside the job",
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _checked(launch: Launch) -> Launch:
    inside = 0 <= launch.rank < launch.world_size
    local = 0 <= launch.local_rank < launch.local_world_size <= launch.world_size
    if not inside or not local or launch.nnodes < 1:
        raise CollbenchError(
            f"environment: {launch.launcher} says rank {launch.rank} of {launch.world_size}, "
            f"local rank {launch.local_rank} of {launch.local_world_size}: that cannot be",
            fix="unset the rank variables an outer shell exported, then start again",
        )
    return launch


def _contradiction(one: str, other: str, fix: str) -> CollbenchError:
    return CollbenchError(f"environment: two launchers at once: {one} and {other}", fix=fix)


def _int(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise CollbenchError(
            f"environment: {name}={text!r} is not a number",
            fix="start with `collbench MODULE`, or torchrun -m collbench.MODULE",
        ) from None
