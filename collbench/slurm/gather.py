"""Gather what the tasks of a job left: their documents, and what Slurm says of those without.

Files come first: they outlive Slurm's memory of a job. A task without a document is in the table
with its state and the last line of its log; nothing is dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from collbench.errors import CollbenchError, Exit
from collbench.slurm.control import State

_TASK = re.compile(r"task-(\d{1,6})\.(json|nodes|exit)")
_MOST_BYTES = 64 << 20
_TAIL_BYTES = 4000
GOOD_FROM = 2
"""Nodes that must have confirmed a profile before it is called good for their class."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One sweep of a job."""

    task: int
    state: str
    """``done``: its document is there. Else Slurm's word, or ``unknown``."""
    nodes: str = ""
    verdict: str | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    default_us: float | None = None
    winner_us: float | None = None
    settings: dict[str, str] = field(default_factory=dict)
    profile: str | None = None
    outcomes: dict[str, int] = field(default_factory=dict)
    trials: int = 0
    trials_reused: int = 0
    seconds: float = 0.0
    exit_code: int | None = None
    last_line: str = ""
    """Of the log of a task without a document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassVerdict:
    """One set of settings and the nodes that confirmed it."""

    settings: dict[str, str]
    nodes: tuple[str, ...]
    good: bool
    """Confirmed on at least two nodes."""


def gather(folder: Path, job: str, states: Mapping[int, State], *, tasks: int = 0) -> list[Task]:
    """Return every task of a job, by index.

    Args:
        folder: ``OUT/slurm``.
        job: Its id.
        states: What Slurm says, as far as it remembers.
        tasks: How many there must be, where that is known.

    Raises:
        CollbenchError: nothing is known of this job.
    """
    files: dict[int, dict[str, Path]] = {}
    for path in (folder / job).glob("task-*"):
        match = _TASK.fullmatch(path.name)
        if match is not None:
            files.setdefault(int(match[1]), {})[match[2]] = path
    known = sorted({*files, *states, *range(tasks)})
    if not known:
        raise CollbenchError(
            f"{folder}: nothing of job {job}, and Slurm does not know it",
            fix="give --out as it was given to `slurm submit`",
        )
    return [_task(folder, job, index, files.get(index, {}), states.get(index)) for index in known]


def _task(
    folder: Path, job: str, index: int, files: Mapping[str, Path], state: State | None
) -> Task:
    nodes = _text(files.get("nodes")) or (state.nodes if state else "")
    code = _text(files.get("exit"))
    plain = _document(files.get("json"))
    if plain is None:
        word = state.state if state else ("FAILED" if code not in ("", "0") else "unknown")
        return Task(
            task=index,
            state=word,
            nodes=nodes,
            exit_code=int(code) if code.isdigit() else None,
            last_line=_last_line(folder, job, index) or (state.reason if state else ""),
        )
    running = state is not None and not state.ended and not code
    return Task(
        task=index,
        state=state.state if running and state is not None else "done",
        nodes=nodes,
        verdict=_as(plain, "verdict", str),
        ratio=_number(plain.get("ratio")),
        interval=_interval(plain.get("interval")),
        default_us=_number(plain.get("default_us")),
        winner_us=_number(plain.get("winner_us")),
        settings={str(n): str(v) for n, v in (_as(plain, "settings", dict) or {}).items()},
        profile=_as(plain, "profile", str),
        outcomes={
            str(n): v for n, v in (_as(plain, "outcomes", dict) or {}).items() if isinstance(v, int)
        },
        trials=_as(plain, "trials", int) or 0,
        trials_reused=_as(plain, "trials_reused", int) or 0,
        seconds=_number(plain.get("seconds")) or 0.0,
        exit_code=_as(plain, "exit_code", int),
    )


def class_verdicts(tasks: Sequence[Task]) -> list[ClassVerdict]:
    """Return each set of settings that some node confirmed, those of most nodes first."""
    found: dict[tuple[tuple[str, str], ...], set[str]] = {}
    for task in tasks:
        if task.verdict == "profile":
            key = tuple(sorted(task.settings.items()))
            found.setdefault(key, set()).add(task.nodes or f"task {task.task}")
    verdicts = [
        ClassVerdict(settings=dict(key), nodes=tuple(sorted(nodes)), good=len(nodes) >= GOOD_FROM)
        for key, nodes in found.items()
    ]
    return sorted(verdicts, key=lambda one: (-len(one.nodes), sorted(one.settings.items())))


def document(job: str, tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the JSON document of a gathered job; ``exit_code`` is that of the command."""
    verdicts = class_verdicts(tasks)
    ends = {(task.verdict, tuple(sorted(task.settings.items()))) for task in tasks if task.verdict}
    code = Exit.OK
    if any(task.verdict is None for task in tasks):
        code = Exit.FAILED
    elif len(ends) > 1:
        code = Exit.FINDINGS
    return {
        "schema": 1,
        "command": "slurm",
        "exit_code": int(code),
        "job": job,
        "tasks": [asdict(task) for task in tasks],
        "class": [asdict(verdict) for verdict in verdicts],
    }


def _document(path: Path | None) -> dict[str, Any] | None:
    """Return a sweep's document; one that is cut or is no document counts as none."""
    text = _text(path)
    try:
        plain = json.loads(text) if text else None
    except (json.JSONDecodeError, RecursionError):
        return None
    return plain if isinstance(plain, dict) and "verdict" in plain else None


def _text(path: Path | None) -> str:
    try:
        if path is None or path.stat().st_size > _MOST_BYTES:
            return ""
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _last_line(folder: Path, job: str, index: int) -> str:
    for name in (f"{job}.{index}.log", f"{job}.log"):
        path = folder / name
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
                lines = file.read().decode(errors="replace").replace("\r", "\n").splitlines()
        except OSError:
            continue
        said = [line.strip() for line in lines if line.strip()]
        # what went wrong is a line of ours; its fix stands below it
        ours = [line for line in said[-4:] if line.startswith("collbench: ")]
        last = (ours or said or [""])[-1]
        return "".join(char for char in last if char.isprintable())[:160]
    return ""


def _as(plain: Mapping[str, Any], name: str, kind: type) -> Any:
    value = plain.get(name)
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _interval(value: Any) -> tuple[float, float] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    low, high = _number(value[0]), _number(value[1])
    return None if low is None or high is None else (low, high)
