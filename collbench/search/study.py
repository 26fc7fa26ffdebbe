"""One study while it runs: the phases in their order, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from collbench.confirm.arms import Setup
from collbench.confirm.confirmation import Confirmation, confirm
from collbench.confirm.gate import Limits
from collbench.confirm.noise import Floor, measure_floor
from collbench.confirm.objective import Objective
from collbench.confirm.statistics import pairs_for
from collbench.job import Run, Settings
from collbench.lab import Lab
from collbench.search.ablate import ablate
from collbench.search.account import Account
from collbench.search.budget import plan_launches, rest_of_sweep, search_seconds
from collbench.search.engine import Engine
from collbench.search.events import Progress
from collbench.search.front import front
from collbench.search.history import History
from collbench.search.ledger import Ledger, LedgerLab
from collbench.search.options import Options
from collbench.search.result import StudyResult, searched
from collbench.search.shared import Peers
from collbench.search.shortlist import Limit, Short, pick, shorten
from collbench.search.storage import open_study
from collbench.search.strategies import choose
from collbench.space.axes import Space, key

Draft = Callable[[Settings], Path]
CONFIRMATIONS = 2
"""Confirmations of one study. Each spends the gate's level; two stay far inside it."""


class Study:
    """One study while it runs."""

    def __init__(
        self,
        lab: Lab,
        space: Space,
        options: Options,
        study: Any,
        progress: Progress,
        draft: Draft | None,
    ) -> None:
        self.space, self.options, self.study = space, options, study
        self.progress, self.draft = progress, draft
        self.ledger = Ledger(study)
        self.lab = LedgerLab(lab, self.ledger)
        self.reference = dict(options.base)
        self.setup = Setup(
            lab=self.lab,
            backend=options.backend,
            objective=cast("Objective", options.objective),
            told=self._told,
        )
        self.account = Account(
            options=options,
            limits=Limits(min_gain=options.min_gain, slower=options.slower),
            strategy=options.strategy,
        )
        self.peers: Peers | None = None
        self.launches: int | None = None  # of the search, once the noise floor has fixed them

    def share(self, peers: Peers) -> None:
        """Search together with other nodes; this node's launches go into a study of its own."""
        self.peers = peers
        own = open_study(
            self.study._storage,
            f"{self.options.study}@{peers.node.name}",
            self.options.defining(),
            join=True,
        )
        self.lab.ledger = self.ledger = Ledger(own)

    def _told(self, settings: Settings, run: Run, ratio: float | None) -> None:
        left = self._left()
        shown = {} if key(settings) == key(self.reference) else dict(settings)
        self.progress.trial(shown, run.outcome, ratio, reason=run.reason, left_s=left)

    def _left(self) -> float | None:
        """Return the seconds that are left: of a time budget, else by the launches still due."""
        if self.options.budget.seconds is not None:
            return max(0.0, self.options.budget.seconds - self.account.seconds())
        new = len(self.ledger.runs) - self.ledger.reused
        if self.launches is None or not new:
            return None
        due = 2 * self.options.noise_pairs + self.launches + rest_of_sweep(self.account.pairs)
        return max(0, due - len(self.ledger.runs)) * self.account.seconds() / new

    def run(self) -> StudyResult:
        """Run the phases in order."""
        floor = self._floor()
        if floor.too_little:
            share = (floor.exposed_us or 0.0) / floor.default_us * 100
            return self._keep(
                f"only {share:.1f} % of the step is exposed communication: nothing worth tuning"
            )
        history = self._search(floor)
        known = self._of_class()
        if known is not None:
            confirmation = self._confirm(known)
            if confirmation.adopt:
                return self._adopt(known, confirmation, history)
        shortlist = self._shortlist(history, floor)
        if not shortlist:
            return self._keep(
                "no candidate of the search was faster than the default"
                f" (only gains above {self.account.visible() * 100:.1f} % can be seen here)"
            )
        tried: list[tuple[dict[str, str], Confirmation]] = []
        while len(tried) < CONFIRMATIONS:
            candidate = self._next(shortlist, tried, floor)
            if candidate is None:
                break
            confirmation = self._confirm(candidate)
            if confirmation.adopt:
                return self._adopt(candidate, confirmation, history)
            tried.append((candidate, confirmation))
        return self._keep(*tried[0][1].reasons, confirmation=tried[0][1])

    def _of_class(self) -> dict[str, str] | None:
        """Return settings that other nodes of the class have confirmed, for this one to try."""
        found = self.peers.confirmed() if self.peers is not None else []
        found = [s for s in found if self.space.contains(_beyond(s, self.reference))]
        if not found:
            return None
        self.progress.say("confirming what another node of the class has confirmed")
        return found[0]

    def _next(
        self,
        shortlist: list[Short],
        tried: list[tuple[dict[str, str], Confirmation]],
        floor: Floor,
    ) -> dict[str, str] | None:
        """Return what is confirmed next.

        First the ablated best. Then, once: the whole of it, where ablation may have taken the
        gain; or the next of the shortlist, where the guard or a failure stopped the best.
        """
        if not tried:
            return self._ablate(shortlist[0].settings, floor)
        last, confirmation = tried[-1]
        if not confirmation.blocked:
            whole = shortlist[0].settings
            return whole if key(whole) != key(last) else None
        for short in shortlist[1:]:
            if not set(last.items()) <= set(short.settings.items()):
                self.account.search_log = short.search_log
                return self._ablate(short.settings, floor)
        return None

    # -- phases

    def _floor(self) -> Floor:
        options = self.options
        self.lab.phase = "aa"
        self.progress.stage("noise floor", 2 * options.noise_pairs)
        floor = measure_floor(
            self.setup, self.reference, beside=options.beside, pairs=options.noise_pairs
        )
        self.account.floor = floor
        self.account.limits = replace(self.account.limits, sd=floor.sd)
        self.account.pairs = pairs_for(
            floor.sd, options.wanted_gain, floor=options.pairs[0], cap=options.pairs[1]
        )
        self.progress.default(floor.default_us, floor.sd * 100)
        self.progress.say(f"only gains above {self.account.visible() * 100:.1f} % can be seen here")
        if not floor.honest:
            self.account.warnings.append(
                f"the default differs from itself (ratio {floor.ratio:.3f}): the machine is not "
                "calm; nothing else should run on it"
            )
        return floor

    def _search(self, floor: Floor) -> History:
        options = self.options
        elapsed = self.account.seconds()
        each = self.ledger.seconds_each() or floor.seconds_per_launch
        launches = plan_launches(
            options.budget,
            each,
            elapsed,
            self.account.pairs,
            beside=options.beside,
        )
        self.launches = launches
        size = self.space.size()
        share = 0.5 if options.beside else 5 / 6
        strategy, self.account.strategy = choose(options.strategy, size, int(launches * share))
        history = History(
            reference=(),
            sd=floor.sd,
            beside=options.beside,
            slower=options.slower,
            case_sd=floor.case_sd,
            before=floor.samples,
        )
        self.progress.stage("search", launches)
        engine = Engine(
            setup=self.setup,
            lab=self.lab,
            space=self.space,
            study=self.study,
            history=history,
            strategy=strategy,
            launches=launches,
            seed=options.seed,
            base=self.reference,
            peers=self.peers,
            seconds_left=search_seconds(options.budget, each, elapsed, self.account.pairs),
        )
        engine.run()
        self.account.searched = searched(history)
        if options.objective == "pareto":
            self.account.front = front(history, self.reference)
        return history

    def _shortlist(self, history: History, floor: Floor) -> list[Short]:
        best_seen = next(iter(history.ranking()), None)
        if best_seen and best_seen.log < 0:
            self.account.search_winner = self.reference | dict(best_seen.key)
        chosen = pick(history)
        if not chosen:
            return []
        self.lab.phase = "shortlist"
        self.progress.stage("shortlist", None)
        found = shorten(
            self.setup,
            chosen,
            sd=floor.sd,
            reference=self.reference,
            limit=Limit(slower=self.options.slower, sd=floor.sd, case_sd=floor.case_sd),
        )
        self.account.shortlist = tuple(found)
        promising = [s for s in found if s.pooled < 0]
        if promising:
            self.account.search_log = promising[0].search_log
        return promising

    def _ablate(self, candidate: dict[str, str], floor: Floor) -> dict[str, str]:
        self.lab.phase = "ablate"
        self.progress.stage("ablation", None)
        left, table = ablate(self.setup, self.space, candidate, sd=floor.sd, base=self.reference)
        self.account.ablation += tuple(table)
        return left

    def _confirm(self, candidate: dict[str, str]) -> Confirmation:
        self.lab.phase = "confirm"
        self.progress.stage("confirmation", 2 * self.account.pairs)
        # Outlying launches may ask for more pairs than the noise floor does: up to the cap.
        found = confirm(
            self.setup,
            candidate,
            self.account.limits,
            pairs=self.options.pairs[1],
            floor=self.options.pairs[0],
            reference=self.reference,
            draft=self.draft,
        )
        if self.peers is not None:
            self.account.confirmed_on = self.peers.report(
                candidate, adopted=found.adopt, ratio=found.ratio if found.pairs else None
            )
        return found

    # -- ends

    def _adopt(
        self, settings: dict[str, str], confirmation: Confirmation, history: History
    ) -> StudyResult:
        self.lab.phase = "proof"
        self.progress.stage("proof", 1)
        proof = self.lab.launch(settings, "proof")
        if proof.outcome != "ok":
            return self._keep(
                f"the launch that was to prove it {proof.outcome}: {proof.reason}",
                confirmation=confirmation,
            )
        score = history.scores().get(key(_beyond(settings, self.reference)))
        if score is not None and score.count:
            self.account.search_log = score.log
        return self.account.adopt(self.ledger, settings, confirmation, proof)

    def _keep(self, *reasons: str, confirmation: Confirmation | None = None) -> StudyResult:
        return self.account.keep(self.ledger, *reasons, confirmation=confirmation)


def _beyond(settings: Settings, reference: Settings) -> dict[str, str]:
    """Return what settings add to the reference."""
    return {n: v for n, v in settings.items() if reference.get(n) != v}
