"""One study while it runs: the phases in their order, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from collbench.confirm.arms import Setup
from collbench.confirm.confirmation import Confirmation
from collbench.confirm.gate import Limits
from collbench.confirm.noise import Floor, measure_floor
from collbench.confirm.objective import Objective
from collbench.confirm.statistics import pairs_for
from collbench.job import Run, Settings
from collbench.lab import Lab
from collbench.search.account import Account
from collbench.search.budget import plan_launches, rest_of_sweep, search_seconds
from collbench.search.ends import SIDES, with_ends
from collbench.search.engine import Engine
from collbench.search.events import Progress
from collbench.search.finish import Draft, Finish, beyond
from collbench.search.front import front
from collbench.search.history import History
from collbench.search.ledger import Ledger, LedgerLab
from collbench.search.options import Options
from collbench.search.result import StudyResult, searched
from collbench.search.shared import Peers
from collbench.search.storage import open_study
from collbench.search.strategies import choose
from collbench.space.axes import Space, key


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
        # of a front; a hazard is for the server that the safe profile is for
        self.ends = len(SIDES) if options.objective == "pareto" and not options.hazards else 0

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
        due = 2 * self.options.noise_pairs + self.launches
        due += (1 + self.ends) * rest_of_sweep(self.account.pairs)
        return max(0, due - len(self.ledger.runs)) * self.account.seconds() / new

    def run(self) -> StudyResult:
        """Run the phases in order."""
        floor = self._floor()
        if floor.too_little and self.options.objective == "decode":
            share = (floor.exposed_us or 0.0) / floor.default_us * 100
            return self.account.keep(
                self.ledger,
                f"only {share:.1f} % of the step is exposed communication: nothing worth tuning",
            )
        history = self._search(floor)
        finish = Finish(
            setup=self.setup,
            lab=self.lab,
            space=self.space,
            history=history,
            account=self.account,
            progress=self.progress,
            draft=self.draft,
            told=self._confirmed,
        )
        result = finish.run(self._of_class())
        return with_ends(finish, result) if self.ends else result

    def _confirmed(self, settings: Settings, found: Confirmation) -> None:
        """Tell the other nodes of the class how a confirmation ended here."""
        if self.peers is not None:
            self.account.confirmed_on = self.peers.report(
                settings, adopted=found.adopt, ratio=found.ratio if found.pairs else None
            )

    def _of_class(self) -> dict[str, str] | None:
        """Return settings that other nodes of the class have confirmed, for this one to try."""
        found = self.peers.confirmed() if self.peers is not None else []
        found = [s for s in found if self.space.contains(beyond(s, self.reference))]
        if not found:
            return None
        self.progress.say("confirming what another node of the class has confirmed")
        return found[0]

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
        each = self.ledger.seconds_each() or floor.seconds_per_launch
        # A resumed study has its A/A from the storage: its plan is that of the first part.
        elapsed = max(self.account.seconds(), len(self.ledger.runs) * each)
        launches = plan_launches(
            options.budget,
            each,
            elapsed,
            self.account.pairs,
            beside=options.beside,
            ends=self.ends,
        )
        self.launches = launches
        size = self.space.size()
        share = 0.5 if options.beside else 5 / 6
        strategy, self.account.strategy = choose(options.strategy, size, int(launches * share))
        history = History.after(floor, beside=options.beside, slower=options.slower)
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
            seconds_left=search_seconds(
                options.budget, each, elapsed, self.account.pairs, ends=self.ends
            ),
        )
        engine.run()
        self.account.searched = searched(history)
        if options.objective == "pareto":
            self.account.front = front(history, self.reference)
        return history
