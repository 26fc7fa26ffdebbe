"""What is asked of Slurm, checked: every word that reaches a job script passes here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from collbench.errors import CollbenchError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_NAMES = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,-]{0,255}")
_NODES = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,\[\]-]{0,1023}")
_FEATURES = re.compile(r"[A-Za-z0-9_\[(][A-Za-z0-9_.&|*,:()\[\]-]{0,255}")
_TIME = re.compile(r"\d{1,7}(:\d{1,2}){0,2}|\d{1,4}-\d{1,2}(:\d{1,2}){0,2}")
_FOLDER = re.compile(r"/[A-Za-z0-9_./+@=,-]*")
_PASSWORD = re.compile(r"://[^/@\s:]*:[^/@\s]+@")
_OPTION = re.compile(r"--[a-z][a-z-]*(=[A-Za-z0-9_./:,%@+\[\]-]+)?")
_OURS = frozenset(
    {
        "array",
        "chdir",
        "exclusive",
        "export",
        "gpus-per-node",
        "job-name",
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "open-mode",
        "output",
        "parsable",
        "signal",
        "time",
        "wrap",
    }
)
"""Options of sbatch that the script sets itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One submission: a sweep of a SPEC on `nodes` nodes, `array` times."""

    spec: str
    """A sweep file, or the name of a shipped one."""
    arguments: tuple[str, ...] = ()
    """Further arguments of the sweep, as they would stand behind it."""
    out: Path
    """Folder that every node sees; absolute."""
    python: str
    """Interpreter that has collbench, on every node; absolute."""
    nodes: int = 1
    """Nodes of one sweep."""
    nproc_per_node: int | None = None
    array: int = 1
    """Sweeps, each on nodes of its own."""
    at_once: int | None = None
    """Most array tasks that run at a time."""
    launcher: Literal["torchrun", "srun"] = "torchrun"
    """What starts the ranks where a sweep spans nodes."""
    exclusive: bool = True
    """Whole nodes: what else runs there would be measured too."""
    gpus_per_node: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    time: str | None = None
    constraint: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    name: str = "collbench"
    storage: str | None = None
    """Shared study: the tasks search together (docs/clusters.md)."""
    profile: Path | None = None
    """Env file to source: its variables become part of the baseline."""
    options: tuple[str, ...] = ()
    """Further words for sbatch, ``--option=value``."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            CollbenchError: a value could end up as something else than itself in a job script.
        """
        for option, number in (
            ("--nodes", self.nodes),
            ("--array", self.array),
            ("--nproc-per-node", self.nproc_per_node),
            ("--at-once", self.at_once),
            ("--gpus-per-node", self.gpus_per_node),
        ):
            if number is not None and not 1 <= number <= 100_000:
                raise CollbenchError(f"{option} {number}: at least 1 is needed")
        if self.at_once is not None and self.at_once > self.array:
            raise CollbenchError(
                f"--at-once {self.at_once}: there are {self.array} tasks",
                fix=f"give at most {self.array}, or leave it out",
            )
        _match("--name", self.name, _NAME, "letters, digits, dot, dash and underscore")
        for option, text in (("--partition", self.partition), ("--account", self.account)):
            _match(option, text, _NAMES, "names, separated by commas")
        _match("--qos", self.qos, _NAME, "a name")
        _match("--constraint", self.constraint, _FEATURES, "features, joined by & or |")
        for option, text in (("--nodelist", self.nodelist), ("--exclude", self.exclude)):
            _match(option, text, _NODES, "nodes, such as gpu[01-04],gpu09")
        _match("--time", self.time, _TIME, "minutes, H:M:S, or D-H:M:S")
        _match("--out", str(self.out), _FOLDER, "an absolute path without spaces, quotes and %")
        _match("--profile", str(self.profile or "/"), _FOLDER, "a path without spaces and quotes")
        for word in self.options:
            _match("--sbatch", word, _OPTION, "--option or --option=value")
            name = word[2:].split("=")[0]
            if name in _OURS:
                raise CollbenchError(
                    f"--sbatch {word}: {name} is set by collbench itself",
                    fix="use the option of `collbench slurm submit` for it",
                )
        for word in (self.spec, self.python, self.storage or "", *self.arguments):
            if any(ord(char) < 32 or ord(char) == 127 for char in word):
                raise CollbenchError(f"{word!r}: control characters cannot stand in a job script")
        if self.storage is not None and _PASSWORD.search(self.storage):
            raise CollbenchError(
                "--storage: a password would stand in the job script",
                fix="leave it out of the URL and put it into ~/.pgpass, or PGPASSWORD",
            )
        if self.spec.startswith("-"):
            raise CollbenchError(f"SPEC {self.spec!r} begins with a dash", fix="write ./ before it")
        if self.nodes > 1 and self.ranks_per_node is None:
            raise CollbenchError(
                f"--nodes {self.nodes}: how many ranks on each?",
                fix="add --gpus-per-node N, or --nproc-per-node N",
            )

    @property
    def ranks_per_node(self) -> int | None:
        """Ranks on each node; None: one per GPU that is found there."""
        return self.nproc_per_node or self.gpus_per_node

    @property
    def folder(self) -> Path:
        """Where logs and documents of submissions lie."""
        return self.out / "slurm"


def _match(option: str, text: str | None, pattern: re.Pattern[str], allowed: str) -> None:
    if text is not None and pattern.fullmatch(text) is None:
        raise CollbenchError(f"{option} {text!r} is not allowed here", fix=f"give {allowed}")
