"""From what a search has seen to a result: shortlist, ablation, confirmation, gate, proof."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collbench.confirm.arms import Setup
from collbench.confirm.confirmation import Confirmation, confirm
from collbench.confirm.noise import Floor
from collbench.job import Settings
from collbench.search.ablate import ablate
from collbench.search.account import Account
from collbench.search.events import Progress
from collbench.search.history import History, Score
from collbench.search.ledger import LedgerLab
from collbench.search.result import StudyResult
from collbench.search.shortlist import Limit, Short, pick, shorten
from collbench.space.axes import Space, key

Draft = Callable[[Settings], Path]
CONFIRMATIONS = 2
"""Confirmations of one study. Each spends the gate's level; two stay far inside it."""
SERVES = "the recommended profile serves it as well"


@dataclass(kw_only=True)
class Finish:
    """Decides for one objective on the launches of a search."""

    setup: Setup
    lab: LedgerLab
    space: Space
    history: History
    account: Account
    """Holds the options, the noise floor and the gate's limits."""
    progress: Progress
    draft: Draft | None = None
    chosen: Sequence[Score] | None = None
    """Candidates for the shortlist; None: the best of the search."""
    confirmations: int = CONFIRMATIONS
    told: Callable[[Settings, Confirmation], None] = lambda settings, confirmation: None
    """Called after every confirmation."""
    spared: Settings = field(default_factory=dict)
    """Settings that are confirmed already, and need not be here."""

    @property
    def reference(self) -> dict[str, str]:
        """Return what candidates are compared with."""
        return dict(self.account.options.base)

    @property
    def floor(self) -> Floor:
        """Return the noise floor."""
        assert self.account.floor is not None
        return self.account.floor

    def run(self, known: Settings | None = None) -> StudyResult:
        """Return the result; `known` was confirmed elsewhere and is tried before all others."""
        if known is not None:
            confirmation = self._confirm(known)
            if confirmation.adopt:
                return self._adopt(dict(known), confirmation)
        shortlist = self._shortlist()
        if not shortlist:
            return self.keep_default(
                "no candidate of the search was faster than the default"
                f" (only gains above {self.account.visible() * 100:.1f} % can be seen here)"
            )
        tried: list[tuple[dict[str, str], Confirmation]] = []
        while len(tried) < self.confirmations:
            candidate = self._next(shortlist, tried)
            if candidate is None:
                break
            if key(candidate) == key(self.spared):
                return self.keep_default(SERVES)
            confirmation = self._confirm(candidate)
            if confirmation.adopt:
                return self._adopt(candidate, confirmation)
            tried.append((candidate, confirmation))
        return self.keep_default(*tried[0][1].reasons, confirmation=tried[0][1])

    def _next(
        self, shortlist: list[Short], tried: list[tuple[dict[str, str], Confirmation]]
    ) -> dict[str, str] | None:
        """Return what is confirmed next.

        First the ablated best. Then, once: the whole of it, where ablation may have taken the
        gain; or the next of the shortlist, where the guard or a failure stopped the best.
        """
        if not tried:
            return self._ablate(shortlist[0].settings)
        last, confirmation = tried[-1]
        if not confirmation.blocked:
            whole = shortlist[0].settings
            return whole if key(whole) != key(last) else None
        for short in shortlist[1:]:
            if not set(last.items()) <= set(short.settings.items()):
                self.account.search_log = short.search_log
                return self._ablate(short.settings)
        return None

    # -- phases

    def _begin(self, phase: str, shown: str, trials: int | None = None) -> None:
        self.lab.phase = f"{self.account.prefix}{phase}"
        self.progress.stage(f"{self.account.prefix}{shown}", trials)

    def _shortlist(self) -> list[Short]:
        best_seen = next(iter(self.history.ranking()), None)
        if best_seen and best_seen.log < 0:
            self.account.search_winner = self.reference | dict(best_seen.key)
        chosen = pick(self.history) if self.chosen is None else self.chosen
        if not chosen:
            return []
        self._begin("shortlist", "shortlist")
        floor = self.floor
        found = shorten(
            self.setup,
            chosen,
            sd=floor.sd,
            reference=self.reference,
            limit=Limit(slower=self.account.options.slower, sd=floor.sd, case_sd=floor.case_sd),
        )
        self.account.shortlist = tuple(found)
        promising = [s for s in found if s.pooled < 0]
        if promising:
            self.account.search_log = promising[0].search_log
        return promising

    def _ablate(self, candidate: dict[str, str]) -> dict[str, str]:
        self._begin("ablate", "ablation")
        left, table = ablate(
            self.setup, self.space, candidate, sd=self.floor.sd, base=self.reference
        )
        self.account.ablation += tuple(table)
        return left

    def _confirm(self, candidate: Settings) -> Confirmation:
        self._begin("confirm", "confirmation", 2 * self.account.pairs)
        least, most = self.account.options.pairs
        # Outlying launches may ask for more pairs than the noise floor does: up to the cap.
        found = confirm(
            self.setup,
            candidate,
            self.account.limits,
            pairs=most,
            floor=least,
            needed=self.account.pairs,
            reference=self.reference,
            draft=self.draft,
        )
        self.told(candidate, found)
        return found

    # -- ends

    def _adopt(self, settings: dict[str, str], confirmation: Confirmation) -> StudyResult:
        self._begin("proof", "proof", 1)
        proof = self.lab.launch(settings, "proof")
        if proof.outcome != "ok":
            return self.keep_default(
                f"the launch that was to prove it {proof.outcome}: {proof.reason}",
                confirmation=confirmation,
            )
        score = self.history.scores().get(key(beyond(settings, self.reference)))
        if score is not None and score.count:
            self.account.search_log = score.log
        return self.account.adopt(self.lab.ledger, settings, confirmation, proof)

    def keep_default(self, *reasons: str, confirmation: Confirmation | None = None) -> StudyResult:
        """Return the result that keeps the default."""
        return self.account.keep(self.lab.ledger, *reasons, confirmation=confirmation)


def beyond(settings: Settings, reference: Settings) -> dict[str, str]:
    """Return what settings add to the reference."""
    return {n: v for n, v in settings.items() if reference.get(n) != v}
