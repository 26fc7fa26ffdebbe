"""What a study found: everything that the document, the profile and the report need."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from collbench.confirm.confirmation import Confirmation
from collbench.confirm.gate import Limits
from collbench.confirm.noise import Floor
from collbench.job import Run
from collbench.search.ablate import Removal
from collbench.search.history import History
from collbench.search.shortlist import Short

Verdict = Literal["profile", "keep_default"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """One candidate of the search."""

    settings: dict[str, str]
    ratio: float | None
    """Candidate / default of its moment; None where no launch ended well."""
    launches: int
    guard: float
    """Worst guarded case: > 0 is slower than allowed beyond noise (log)."""
    outcome: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyResult:
    """The end of a study."""

    verdict: Verdict
    settings: dict[str, str]
    """The profile's settings; empty where the default is kept."""
    reasons: tuple[str, ...]
    """Why the default is kept, or what stayed unsure, in plain words."""
    objective: str
    strategy: str
    """The strategy that ran (``auto`` resolved)."""
    default_us: float | None
    winner_us: float | None
    default_exposed_us: float | None
    winner_exposed_us: float | None
    ratio: float | None
    interval: tuple[float, float] | None
    search_value_us: float | None
    """What the search thought of the winner, on the scale of `default_us`: the optimism."""
    noise_pct: float | None
    visible_pct: float | None
    """Only gains above it can be seen here."""
    trials: int
    """Launches of all phases, defaults included."""
    trials_reused: int
    outcomes: dict[str, int]
    not_searched: list[str]
    not_searched_command: str
    """The command that would search what was left out; empty where nothing was."""
    seconds: float
    reference: dict[str, str] = field(default_factory=dict)
    """What `ratio` compares with: empty for the default, the safe winner under hazards."""
    floor: Floor | None = None
    limits: Limits = field(default_factory=Limits)
    searched: tuple[Searched, ...] = ()
    search_winner: dict[str, str] = field(default_factory=dict)
    """What the search alone would have chosen; never published as a result."""
    shortlist: tuple[Short, ...] = ()
    ablation: tuple[Removal, ...] = ()
    confirmation: Confirmation | None = None
    proof: Run | None = None
    warnings: tuple[str, ...] = ()
    runs: tuple[tuple[str, Run], ...] = ()
    """(phase, run) of every launch, in the order measured or reused."""
    confirmed_on: tuple[str, ...] = ()
    """Nodes that have confirmed these settings, where several share the study; two make them
    good for the class."""
    hazard: StudyResult | None = None
    """The second study, on top of this one's winner, where hazards were allowed."""
    hazards: tuple[str, ...] = ()
    """Hazards that this study's settings may hold."""
    must_hold: tuple[str, ...] = ()
    """What must hold for this profile to be safe."""
    front: tuple[FrontPoint, ...] = ()
    """Decode against prefill (``--objective pareto``)."""
    ends: tuple[StudyResult, ...] = ()
    """The two ends of the front, decode then prefill, adopted or not."""
    prefix: str = ""
    """Before the names of the phases in `runs` that decided on this result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontPoint:
    """One candidate that no other beats in both objectives."""

    settings: dict[str, str]
    decode_ratio: float
    prefill_ratio: float
    knee: bool = False


def searched(history: History) -> tuple[Searched, ...]:
    """Return every candidate of a search, the fastest first."""
    return tuple(
        Searched(
            settings=dict(s.key),
            ratio=math.exp(s.log) if s.count else None,
            launches=s.count,
            guard=s.guard,
            outcome=s.outcome,
            reason=s.reason,
        )
        for s in sorted(history.scores().values(), key=lambda s: s.log)
    )
