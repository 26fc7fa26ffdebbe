"""Targets that start programs on a machine: systemd and Slurm."""

from __future__ import annotations

from collbench.emit import Snippet
from collbench.emit.plain import quoted

WAIT_S = 600


def systemd(snippet: Snippet) -> str:
    """Return a drop-in for a unit, with a guard that fails its start."""
    if snippet.universal:
        environment = [
            "# No '-' in front of the path: a missing file has to fail the start.",
            f"EnvironmentFile={_specifiers(snippet.env_path)}",
        ]
    else:
        environment = [f"Environment={_quoted(f'{n}={v}')}" for n, v in snippet.values.items()]
    return "\n".join(
        [
            f"# {snippet.title}",
            f"# /etc/systemd/system/{snippet.service}.service.d/50-collbench.conf",
            f"# then: systemctl daemon-reload && systemctl restart {snippet.service}",
            "# A file named later, and Environment= in it, can overwrite values: check with",
            f"# systemctl show -p Environment,EnvironmentFiles {snippet.service}",
            "[Service]",
            *environment,
            "# Guard: the start fails if the profile is not live in every worker. '+' gives it the",
            "# right to read the workers whatever User= says.",
            "ExecStartPost=+/usr/bin/env collbench verify "
            f"{_specifiers(snippet.profile_path)} --pid $MAINPID --wait {WAIT_S}",
            f"TimeoutStartSec={WAIT_S + 60}",
            "",
        ]
    )


def slurm(snippet: Snippet) -> str:
    """Return lines for a job script that set the variables inside the job."""
    if snippet.universal:
        setting = [f"set -a; . {snippet.env_path}; set +a"]
    else:
        setting = [f"export {n}={quoted(v)}" for n, v in snippet.values.items()]
    names = ",".join(snippet.values)
    return "\n".join(
        [
            "#!/bin/bash",
            f"# {snippet.title}",
            "#SBATCH --nodes=1",
            "#SBATCH --gres=gpu:8",
            "# Inside the script, in front of srun: sbatch takes the environment at submission,",
            "# --export=NONE drops it, and a user's variable wins over --export=NAME=VALUE.",
            *setting,
            "# Guard: the job fails if the profile is not live in every worker of this node.",
            f"collbench verify {snippet.profile_path} --wait {WAIT_S} || scancel $SLURM_JOB_ID &",
            "srun --export=ALL COMMAND",
            "# mpirun hands variables to other nodes only if they are named:",
            f"#   mpirun {' '.join(f'-x {name}' for name in names.split(','))} COMMAND",
            "",
        ]
    )


def _specifiers(text: str) -> str:
    """Escape what a unit file expands."""
    return text.replace("%", "%%")


def _quoted(assignment: str) -> str:
    """Return ``NAME=VALUE`` for ``Environment=``: quotes, backslashes and specifiers escaped."""
    escaped = assignment.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
