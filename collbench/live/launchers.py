"""Where on the way to a worker an environment usually gets lost, by what launched it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from collbench.live import processes
from collbench.live.processes import Process

_WAYS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    (
        "Ray",
        re.compile(r"(?:^|/)raylet(?: |$)"),
        "workers of Ray have what its raylet had, and vLLM's copy does not replace that: on every "
        "node ray stop, then collbench run PROFILE -- ray start ...",
    ),
    (
        "Slurm",
        re.compile(r"^slurmstepd"),
        "set the variables inside the job script: collbench profile emit PROFILE --target slurm",
    ),
    (
        "MPI",
        re.compile(r"(?:^|/)(?:prted|orted|hydra_pmi_proxy)(?: |$)"),
        "mpirun hands variables to other nodes only if they are named: mpirun -x NAME ...",
    ),
    (
        "a container",
        re.compile(r"(?:^|/)(?:containerd-shim\S*|conmon|docker-init|dumb-init|tini)(?: |$)"),
        "a container keeps the environment of its creation, and its entrypoint can overwrite it: "
        "create it again with --env-file (collbench profile emit PROFILE --target docker)",
    ),
    (
        "tmux or screen",
        re.compile(r"^(?:tmux|screen|SCREEN)[ :]|^(?:tmux|screen)$", re.IGNORECASE),
        "its server keeps the environment of its own start: use collbench run PROFILE -- COMMAND "
        "in the pane",
    ),
    (
        "ssh",
        re.compile(r"^sshd: "),
        "ssh passes no such variables on: use collbench run PROFILE -- COMMAND on this side",
    ),
)


def way_of(process: Process, table: Mapping[int, Process]) -> tuple[str, str] | None:
    """Return what launched a process, and what to do about its environment; None if not known."""
    for parent in processes.ancestors(process.pid, table):
        for name, pattern, advice in _WAYS:
            if pattern.search(parent.title):
                return name, advice
    if _unit_of(process.pid):
        unit = _unit_of(process.pid)
        return (
            f"the unit {unit}",
            f"systemctl show -p EnvironmentFiles {unit}   tells whether it names the profile",
        )
    return None


def _unit_of(pid: int) -> str:
    """Return the systemd service a process belongs to, empty if none."""
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            found = re.search(
                r"/system\.slice/([A-Za-z0-9@:_.-]{1,120}\.service)", file.read(65536)
            )
    except OSError:
        return ""
    return found[1] if found else ""
