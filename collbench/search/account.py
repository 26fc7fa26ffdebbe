"""What a study has found so far, and the result it makes of it at the end."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from collbench.confirm.confirmation import Confirmation
from collbench.confirm.gate import Limits
from collbench.confirm.noise import Floor
from collbench.confirm.statistics import visible_gain
from collbench.job import Run
from collbench.search.ablate import Removal
from collbench.search.ledger import Ledger
from collbench.search.options import Options
from collbench.search.result import FrontPoint, Searched, StudyResult
from collbench.search.shortlist import Short


@dataclass(kw_only=True)
class Account:
    """Filled phase by phase."""

    options: Options
    limits: Limits
    strategy: str
    began: float = field(default_factory=time.monotonic)
    floor: Floor | None = None
    pairs: int = 0
    """Pairs that the noise floor asks for."""
    searched: tuple[Searched, ...] = ()
    search_winner: dict[str, str] = field(default_factory=dict)
    search_log: float | None = None
    """What the search thought of the candidate under confirmation."""
    shortlist: tuple[Short, ...] = ()
    ablation: tuple[Removal, ...] = ()
    front: tuple[FrontPoint, ...] = ()
    confirmed_on: tuple[str, ...] = ()
    """Nodes of the class that confirmed the settings."""
    warnings: list[str] = field(default_factory=list)
    prefix: str = ""
    """Before the names of the phases that decide: an end of a front has phases of its own."""

    def visible(self) -> float:
        """Return the least gain that can be seen here, as a fraction."""
        assert self.floor is not None
        return visible_gain(self.floor.sd, self.pairs, self.limits.gain)

    def seconds(self) -> float:
        """Return the seconds since the study began, or went on."""
        return time.monotonic() - self.began

    def keep(
        self, ledger: Ledger, *reasons: str, confirmation: Confirmation | None = None
    ) -> StudyResult:
        """Return the result that keeps the default."""
        return self._result(ledger, {}, reasons, confirmation, None)

    def adopt(
        self, ledger: Ledger, settings: dict[str, str], confirmation: Confirmation, proof: Run
    ) -> StudyResult:
        """Return the result with a profile."""
        return self._result(ledger, settings, confirmation.reasons, confirmation, proof)

    def _result(
        self,
        ledger: Ledger,
        settings: dict[str, str],
        reasons: tuple[str, ...],
        found: Confirmation | None,
        proof: Run | None,
    ) -> StudyResult:
        floor, options = self.floor, self.options
        assert floor is not None
        compared = found is not None and math.isfinite(found.ratio)
        value = None
        if found is not None and self.search_log is not None:
            value = found.default_us * math.exp(self.search_log)
        return StudyResult(
            verdict="profile" if settings else "keep_default",
            settings=settings,
            reasons=reasons,
            objective=options.objective,
            strategy=self.strategy,
            default_us=found.default_us if found else floor.default_us,
            winner_us=found.winner_us if found and compared else None,
            default_exposed_us=found.default_exposed_us if found else floor.exposed_us,
            winner_exposed_us=found.winner_exposed_us if found else None,
            ratio=found.ratio if found and compared else None,
            interval=found.interval if found and compared else None,
            search_value_us=value,
            noise_pct=floor.sd * 100,
            visible_pct=self.visible() * 100,
            trials=len(ledger.runs),
            trials_reused=ledger.reused,
            outcomes=dict(ledger.outcomes),
            not_searched=list(options.not_searched),
            not_searched_command=options.not_searched_command,
            seconds=self.seconds(),
            confirmed_on=self.confirmed_on if settings else (),
            reference=dict(options.base),
            floor=floor,
            limits=self.limits,
            searched=self.searched,
            search_winner=self.search_winner,
            shortlist=self.shortlist,
            ablation=self.ablation,
            confirmation=found,
            proof=proof,
            warnings=tuple(self.warnings),
            runs=tuple((stored.phase, stored.run) for stored in ledger.runs),
            hazards=options.hazards,
            must_hold=options.must_hold,
            front=self.front,
            prefix=self.prefix,
        )
