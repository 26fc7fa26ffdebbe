"""What a report tells, whatever it was read from: arms, trials, ablation, machine, files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collbench.job import Run
from collbench.machine import Fingerprint
from collbench.record import RunRecord


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One set of settings with its launches; only those that ended well carry times."""

    name: str
    settings: Mapping[str, str]
    runs: list[Run]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One launch of a search, in the order measured."""

    number: int
    stage: str
    settings: Mapping[str, str]
    outcome: str
    reason: str = ""
    value_us: float | None = None
    """The objective."""
    default_us: float | None = None
    """The default near it, which it was scored against."""

    @property
    def ratio(self) -> float | None:
        """Value over the default near it; None where one of them is missing."""
        if self.value_us is None or not self.default_us:
            return None
        return self.value_us / self.default_us


@dataclass(frozen=True, kw_only=True)
class Ablated:
    """What removing one setting from the winner did."""

    setting: str
    """What was removed, in the words of an env file."""
    ratio: float | None
    """Time without it / with it; above 1: it helps."""
    interval: tuple[float, float] | None
    kept: bool
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """One guarded case of the confirmation."""

    case: str
    ratio: float
    """Candidate / default over the confirming pairs."""
    verdict: str
    pairs: int


@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """One candidate of a search with two objectives, both against the default, lower is better."""

    settings: Mapping[str, str]
    decode_ratio: float
    prefill_ratio: float
    on_front: bool = True
    knee: bool = False


@dataclass(frozen=True, kw_only=True)
class Story:
    """One result; what is unknown is empty or None, and its section is left out."""

    title: str
    path: str
    kind: str
    """run, study, profile or sweep."""
    created: str = ""
    backend: str = ""
    nranks: int = 0
    workload: str | None = None
    command: list[str] = field(default_factory=list)
    collbench: str = ""
    method: int | None = None
    machine: Fingerprint | None = None
    record: RunRecord | None = None
    """The run record, where that is what was read."""
    settings: Mapping[str, str] = field(default_factory=dict)
    baseline: Mapping[str, str] = field(default_factory=dict)
    pinned: Mapping[str, str] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict)
    """The sweep's document, as far as it is known."""
    arms: list[Arm] = field(default_factory=list)
    """The default first, where it was measured."""
    paired: bool = False
    """Launch k of every arm stands beside launch k of the default in time."""
    trials: list[Trial] = field(default_factory=list)
    importance: Mapping[str, float] = field(default_factory=dict)
    """Share of the spread of the objective that each parameter explains; sums to 1."""
    importance_method: str = ""
    ablation: list[Ablated] = field(default_factory=list)
    guards: list[Guarded] = field(default_factory=list)
    front: list[FrontPoint] = field(default_factory=list)
    files: Mapping[str, str] = field(default_factory=dict)
    """Name -> text of the files to copy."""
    warnings: list[str] = field(default_factory=list)
