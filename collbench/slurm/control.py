"""Talk to Slurm: submit a script, and ask how its tasks stand."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from collbench.errors import CollbenchError, Exit

_JOB = re.compile(r"\d{1,10}")
_TIMEOUT_S = 60.0
ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """How one task of a job stands, as Slurm says it."""

    task: int
    """Index in the array; 0 where there is none."""
    state: str
    """Slurm's word: PENDING, RUNNING, COMPLETED, CANCELLED ..."""
    nodes: str = ""
    reason: str = ""

    @property
    def ended(self) -> bool:
        """Whether it will not run any more."""
        return self.state in ENDED


def submit(script: str) -> str:
    """Hand a script to sbatch and return the id of the job.

    Raises:
        CollbenchError: there is no Slurm here, or it refuses the job; with its words.
    """
    done = _call(["sbatch", "--parsable"], stdin=script)
    job = done.strip().split(";")[0]
    if _JOB.fullmatch(job) is None:
        raise CollbenchError(f"sbatch answered {done[:80]!r}, not a job id", code=Exit.FAILED)
    return job


def checked_job(job: str) -> str:
    """Return a job id that a user gave.

    Raises:
        CollbenchError: it is no number.
    """
    if _JOB.fullmatch(job) is None:
        raise CollbenchError(f"JOB {job!r} is not a job id", fix="give the number sbatch printed")
    return job


def states(job: str) -> dict[int, State]:
    """Return the tasks of a job that Slurm still knows, by index in the array.

    A task waiting in an array has no entry of its own before it starts.

    Raises:
        CollbenchError: there is no Slurm here, or it does not answer.
    """
    text = _call(["scontrol", "show", "job", "-o", checked_job(job)], known=True)
    found: dict[int, State] = {}
    for line in text.splitlines():
        fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if fields.get("JobId") is None:
            continue
        state = fields.get("JobState", "UNKNOWN")
        for task in _tasks(fields.get("ArrayTaskId", "0")):
            found[task] = State(
                task=task,
                state=state,
                nodes=_word(fields.get("NodeList", "")),
                reason="" if fields.get("Reason") == "None" else _word(fields.get("Reason", "")),
            )
    if not found and shutil.which("sacct"):
        found = _accounted(job)
    return found


def _accounted(job: str) -> dict[int, State]:
    """Ask the accounting for a job that the controller has forgotten; empty where there is none."""
    try:
        text = _call(
            ["sacct", "-n", "-P", "-X", "-j", job, "--format=JobID,State,NodeList"], known=True
        )
    except CollbenchError:
        return {}
    found = {}
    for line in text.splitlines():
        parts = line.split("|")
        if len(parts) != 3:
            continue
        _, _, task = parts[0].partition("_")
        for index in _tasks(task or "0"):
            word = parts[1].split()[0] if parts[1].split() else "UNKNOWN"
            found[index] = State(task=index, state=word, nodes=_word(parts[2]))
    return found


def _tasks(text: str) -> list[int]:
    """Return array indices: ``3``, or ``[2-4,7%2]`` for those that wait."""
    found: list[int] = []
    for part in text.strip("[]").split("%")[0].split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            end = int(last or first)
            found += range(int(first), min(end, int(first) + 100_000) + 1)
    return found


def _word(text: str) -> str:
    if text == "(null)":
        return ""
    return "".join(char for char in text if char.isprintable())[:200]


def _call(command: Sequence[str], *, stdin: str = "", known: bool = False) -> str:
    """Run a command of Slurm; never through a shell.

    Args:
        command: Its words.
        stdin: Text for it.
        known: An unknown job is an answer (nothing), not an error.
    """
    if shutil.which(command[0]) is None:
        raise CollbenchError(
            f"{command[0]} is not on the PATH: this is no machine of a Slurm cluster",
            fix="log in to a node that has Slurm's commands; --dry-run works anywhere",
        )
    try:
        done = subprocess.run(
            list(command),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        raise CollbenchError(
            f"{command[0]} has not answered for {_TIMEOUT_S:g} s",
            fix="ask `scontrol ping` whether the controller is up",
            code=Exit.FAILED,
        ) from error
    if done.returncode == 0:
        return done.stdout
    said = " ".join((done.stderr or done.stdout).split())[:300]
    if known and "Invalid job id" in said:
        return ""
    raise CollbenchError(
        f"{command[0]}: {''.join(c for c in said if c.isprintable())}",
        fix="change the option Slurm names; --dry-run shows the script",
        code=Exit.FAILED,
    )
