"""A sweep file: what is tuned, for which workload, under which guard. Strictly read."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collbench import workload
from collbench.collectives import COLLECTIVES
from collbench.errors import CollbenchError
from collbench.job import Case, Step
from collbench.record import first_fault
from collbench.units import parse_size

LIBRARIES = {"nccl": ("nccl",), "mpi": ("openmpi", "mpich")}
"""Backend -> libraries whose variables it can tune; Gloo has none."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AxisTable(_Strict):
    """One ``[[axis]]``: a knob and its values, least and most channels, or sets of settings."""

    name: str = ""
    knob: str = ""
    values: list[str | int] = []
    least: str = ""
    most: str = ""
    equal: list[int] = []
    least_only: list[int] = []
    most_only: list[int] = []
    choices: list[dict[str, str | int]] = []
    when: dict[str, list[str | int]] = {}
    hazard: str = ""


class GuardTable(_Strict):
    """``[guard]``: cases that a profile must not make slower."""

    collectives: list[str] = ["all_reduce", "all_gather"]
    sizes: list[str] = ["64K", "256K", "1M", "8M", "64M"]
    search: list[str] = ["1M", "8M"]
    """Of these, timed in every launch of the search, so that it turns away early."""
    dtype: str = "bfloat16"
    slower_pct: float = Field(default=3.0, gt=0, le=50)


class BudgetTable(_Strict):
    """``[budget]``: search launches or the time of the whole sweep; pairs of the confirmation."""

    search: int | None = Field(default=None, ge=4)
    time: str = ""
    pairs: tuple[int, int] = (14, 40)
    noise_pairs: int = Field(default=8, ge=4, le=100)
    min_gain_pct: float = Field(default=2.0, ge=0.5, le=50)
    wanted_gain_pct: float = Field(default=3.0, ge=0.5, le=50)


class SweepTable(_Strict):
    """The whole file."""

    schema_: Literal[1] = Field(alias="schema")
    title: str = ""
    backend: Literal["nccl", "mpi"]
    library: Literal["nccl", "openmpi", "mpich"]
    objective: Literal["decode", "prefill", "pareto"] = "decode"
    strategy: str = "auto"
    workload: dict[str, Any]
    guard: GuardTable = GuardTable()
    budget: BudgetTable = BudgetTable()
    baseline: dict[str, str | int] = {}
    axis: list[AxisTable] = Field(min_length=1)
    forbid: list[dict[str, str | int]] = []
    seeds: list[dict[str, str | int]] | None = None
    """None: the known-good list of the library."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spec:
    """A sweep file that was read; `collbench.space.build` makes spaces of it."""

    name: str
    path: str
    table: SweepTable

    @property
    def backend(self) -> str:
        """Return the backend the sweep is for."""
        return self.table.backend

    def step(self, nranks: int) -> Step:
        """Return the workload's step for a number of ranks.

        Raises:
            CollbenchError: the workload table is wrong, or its source cannot be read.
        """
        found = workload.load_table(self.table.workload, where=f"{self.path}: workload", tp=nranks)
        return found.step

    def guard(self) -> tuple[Case, ...]:
        """Return the guarded cases."""
        return self._cases(self.table.guard.sizes)

    def search_guard(self, objective: str | None = None) -> tuple[Case, ...]:
        """Return the guarded cases that launches of the search time as well.

        All of them where the objective is made of them (``prefill``, ``pareto``).
        """
        wanted = objective or self.table.objective
        table = self.table.guard
        return self._cases(table.search if wanted == "decode" else table.sizes)

    def _cases(self, sizes: list[str]) -> tuple[Case, ...]:
        table = self.table.guard
        return tuple(
            Case(
                collective=collective,
                size_bytes=parse_size(size, where=f"{self.path}: guard.sizes"),
                dtype=table.dtype,
                mode="graph",
            )
            for collective in table.collectives
            for size in sizes
        )

    def defining(self) -> dict[str, Any]:
        """Return what a resumed study must have in common with its start, field by field.

        Texts and budgets may change between the parts of a study.
        """
        plain = self.table.model_dump(mode="json", exclude={"title", "budget", "strategy"})
        plain.pop("objective")
        return {f"sweep.{name}": value for name, value in sorted(plain.items())}

    def digest(self) -> str:
        """Return twelve hexadecimal digits that stand for the defining fields."""
        text = json.dumps(self.defining(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def shipped() -> dict[str, Path]:
    """Return the sweeps of the package by name."""
    folder = resources.files("collbench").joinpath("sweeps")
    with resources.as_file(folder) as path:
        return {file.stem: file for file in sorted(path.glob("*.toml"))}


def load_spec(source: str) -> Spec:
    """Read a sweep file, or a shipped sweep by its name.

    Raises:
        CollbenchError: unknown name, unreadable, not TOML, or a field that is missing, unknown or
            wrong: the file, the field, the value and what is allowed are named.
    """
    path = Path(source)
    if path.suffix != ".toml" and not path.exists():
        known = shipped()
        if source not in known:
            raise CollbenchError(
                f"no sweep {source!r}: neither a file nor one of {', '.join(known)}",
                fix="name one of these, or give the path of a .toml file",
            )
        path = known[source]
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CollbenchError(f"{path}: {error.strerror}", fix="check the path") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise CollbenchError(
            f"{path}: not TOML: {str(error)[:160]}", fix="see docs/search.md for the format"
        ) from error
    return spec_of(plain, name=path.stem, where=str(path))


def spec_of(plain: Mapping[str, Any], *, name: str, where: str) -> Spec:
    """Return the spec of a parsed sweep file.

    Raises:
        CollbenchError: a field is missing, unknown or wrong.
    """
    try:
        table = SweepTable.model_validate(plain)
    except ValidationError as error:
        raise CollbenchError(
            f"{where}: {first_fault(error)}{_allowed(error)}", fix="see docs/search.md"
        ) from error
    if table.library not in LIBRARIES[table.backend]:
        raise CollbenchError(
            f"{where}: library: {table.library!r} is not tuned by backend {table.backend!r}",
            fix=f"choose one of {', '.join(LIBRARIES[table.backend])}",
        )
    low, high = table.budget.pairs
    if not 4 <= low <= high <= 200:
        raise CollbenchError(
            f"{where}: budget.pairs: [{low}, {high}] is not [least, most] with 4 <= least <= most",
            fix="write for example pairs = [14, 40]",
        )
    for collective in table.guard.collectives:
        if collective not in COLLECTIVES:
            raise CollbenchError(
                f"{where}: guard.collectives: {collective!r} is unknown",
                fix=f"choose of {', '.join(COLLECTIVES)}",
            )
    spec = Spec(name=name, path=where, table=table)
    spec.guard()
    spec.search_guard()
    return spec


def _allowed(error: ValidationError) -> str:
    """Return the fields that may stand where an unknown one stood."""
    fault = error.errors(include_url=False)[0]
    if fault["type"] != "extra_forbidden":
        return ""
    tables: dict[str, type[BaseModel]] = {
        "axis": AxisTable,
        "guard": GuardTable,
        "budget": BudgetTable,
    }
    where = str(fault["loc"][0]) if len(fault["loc"]) > 1 else ""
    model = tables.get(where, SweepTable)
    names = sorted((f.alias or n) for n, f in model.model_fields.items())
    return f"; allowed are {', '.join(names)}"
