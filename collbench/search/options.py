"""What a study is asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collbench.confirm.objective import OBJECTIVES
from collbench.errors import CollbenchError
from collbench.search.budget import Budget
from collbench.search.shared import Node
from collbench.search.strategies import STRATEGIES
from collbench.space.axes import Key


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What a study is asked to do; the defaults are those of `collbench sweep`."""

    backend: str
    beside: bool
    """Score every candidate beside a default of its own (hosts without a steady clock: CPU)."""
    objective: str = "decode"
    strategy: str = "auto"
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    resume: bool = False
    study: str = "sweep"
    """Name of the study in the storage."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """What defines the study besides these options, as plain values (space digest, workload)."""
    min_gain: float = 0.02
    wanted_gain: float = 0.03
    """The gain that the number of pairs is chosen for, as a fraction."""
    slower: float = 0.03
    """How much slower a guarded case may be, as a fraction."""
    pairs: tuple[int, int] = (14, 40)
    """Fewest and most confirming pairs."""
    noise_pairs: int = 8
    base: Mapping[str, str] = field(default_factory=dict)
    """Settings under every candidate and under the reference (the safe winner, under hazards)."""
    first: tuple[Key, ...] = ()
    """Settings tried before every other: the last profiles of this machine, newest first."""
    node: Node | None = None
    """This node, where the storage may be shared with others of its class."""
    not_searched: tuple[str, ...] = ()
    not_searched_command: str = ""
    hazards: tuple[str, ...] = ()
    must_hold: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise CollbenchError(
                f"--objective {self.objective!r} is unknown",
                fix=f"choose one of {', '.join(OBJECTIVES)}",
            )
        if self.strategy not in STRATEGIES:
            raise CollbenchError(
                f"--strategy {self.strategy!r} is unknown",
                fix=f"choose one of {', '.join(STRATEGIES)}",
            )

    def defining(self) -> dict[str, Any]:
        """Return the fields that a resumed study must have in common with its first part."""
        return {
            **self.spec,
            "backend": self.backend,
            "objective": self.objective,
            "strategy": self.strategy,
            "seed": self.seed,
            "base": dict(self.base),
            "hazards": list(self.hazards),
        }
