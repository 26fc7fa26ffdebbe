"""The search loop: ask, launch, tell; defaults in between; nothing told twice.

All candidates pass through the study's ask and tell, whoever proposed them, so that a storage
holds the whole search and a sampler sees every candidate.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from optuna.trial import Trial, TrialState

from collbench.confirm.arms import Setup
from collbench.errors import CollbenchError, Exit
from collbench.job import Run, Settings
from collbench.search.history import History, Seen
from collbench.search.ledger import LedgerLab, Stored
from collbench.search.shared import Peers
from collbench.search.storage import abandoned
from collbench.search.strategies import Strategy, View
from collbench.space.axes import WIDE, Key, Space, key

DEFAULT_EVERY = 6
"""Launches from one default to the next where defaults are interleaved (GPUs)."""
SAMPLED_AT_MOST = 3
"""Launches of one candidate that the sampler may ask for; then a neighbour is taken."""
PENALTY = math.log(10)
"""Told for a candidate without a time: TPE learns nothing from a trial told as failed."""
_TRIES = 25


@dataclass(kw_only=True)
class Engine:
    """One search."""

    setup: Setup
    lab: LedgerLab
    space: Space
    study: optuna.Study
    history: History
    strategy: Strategy
    launches: int
    """Budget of search launches, defaults included; those of an earlier part count."""
    seed: int
    base: Settings
    """Settings of the reference, under every candidate."""
    seconds_left: float = math.inf
    peers: Peers | None = None
    """The other nodes that search this study; None: it is ours alone."""
    _told: int = 0
    """Launches that the other nodes know of."""
    _queued: int = 0
    """Trials that a kill left and that were enqueued again: they come before new proposals."""

    def run(self) -> None:
        """Search until the budget is spent.

        Raises:
            CollbenchError: the lab can launch no more, or the default fails twice in a row.
        """
        self.lab.phase = "search"
        stored = self.lab.ledger.take_search()
        self._recover(stored)
        # what an earlier part spent counts against a time budget
        began = time.monotonic() - sum(one.run.seconds for one in stored)
        if not self.study.get_trials(deepcopy=False):
            trial, name = self._ask(self.history.reference)
            self._default()
            if name == self.history.reference:
                self._close(trial, 0.0, 0.0)
            else:  # another node had queued something
                self._try(trial, name)
        while self._done() < self.launches:
            if time.monotonic() - began > self.seconds_left:
                break
            if not self.history.beside and self._default_is_due():
                self._default()
            elif not self._candidate():
                break
        self.lab.trial = None

    def _done(self) -> int:
        """Return the launches that count against the budget: ours, and those of other nodes."""
        if self.peers is None:
            return len(self.history.seen)
        self.peers.retry_stale()
        self.peers.hear(self.history)
        return len(self.history.seen) + self.peers.launches

    def _default_is_due(self) -> bool:
        seen = self.history.seen
        if self.history.doubtful_default():
            return True
        since = next(
            (n for n, s in enumerate(reversed(seen)) if s.key == self.history.reference), len(seen)
        )
        last = len(seen) == self.launches - 1 and self.launches > DEFAULT_EVERY
        return not seen or since >= DEFAULT_EVERY - 1 or (last and since > 1)

    def _default(self) -> None:
        for attempt in range(2):
            run = self._launch(self.history.reference)
            if run.outcome == "ok":
                return
            if attempt:
                raise CollbenchError(
                    f"the default itself cannot be measured any more: {run.outcome}: {run.reason}",
                    fix="look at the machine, then go on with --resume",
                    code=Exit.FAILED,
                )

    def _launch(self, name: Key) -> Run:
        settings = dict(self.base) | dict(name)
        run = self.setup.lab.launch(settings, "search")
        self._see(name, run)
        ratio = None
        local = self.history.local_default()
        found = self.history.seen[-1].sample
        if found is not None and not np.isnan(local[-1]):
            ratio = found.value_us / math.exp(float(local[-1]))
        self.setup.told(settings, run, ratio)
        return run

    def _see(self, name: Key, run: Run) -> None:
        found = self.setup.read(run)
        self.history.add(Seen(key=name, outcome=run.outcome, sample=found, reason=run.reason))

    # -- candidates

    def _candidate(self) -> bool:
        """Launch one candidate; False where the space has nothing more to offer."""
        need = 2 if self.history.beside else 1
        if self._done() + need > self.launches:
            return False
        for _ in range(_TRIES):
            if self._queued:
                self._queued -= 1
                trial, name = self._ask(None)
            else:
                trial, name = self._ask(self._free(self._view()))
            if self._admissible(trial, name):
                self._try(trial, name)
                return True
        return self._neighbour()

    def _free(self, view: View) -> Key | None:
        """Return the strategy's proposal, or another one where a node is at it just now."""
        proposal = self.strategy.next(view)
        busy = self.peers.busy() if self.peers is not None else ()
        if proposal not in busy:
            return proposal
        rest = [name for name in self._all() if name not in busy and view.new(name)]
        return rest[int(view.rng.integers(len(rest)))] if rest else proposal

    def _try(self, trial: Trial, name: Key) -> None:
        self.lab.trial = trial.number
        if self.history.beside:
            self._default()
        self._launch(name)
        self._tell(trial, name)
        self.lab.trial = None

    def _neighbour(self) -> bool:
        """Launch a random setting not launched yet: the sampler keeps asking for known ones."""
        view = self._view()
        rest = [name for name in self._all() if view.new(name)]
        if not rest:
            return False
        trial, name = self._ask(rest[int(view.rng.integers(len(rest)))])
        self._try(trial, name)
        return True

    def _ask(self, proposal: Key | None) -> tuple[Trial, Key]:
        if proposal is not None:
            labels = self.space.labels_of(dict(proposal))
            assert labels is not None, proposal
            self.study.enqueue_trial(labels)
        trial = self.peers.ask() if self.peers is not None else self.study.ask()
        taken: dict[str, str] = {}
        settings: dict[str, str] = {}
        for axis in self.space.axes:
            if axis.active(settings):
                names = [c.label for c in axis.choices]
                taken[axis.name] = trial.suggest_categorical(axis.name, names)
                settings.update(axis.choice(taken[axis.name]).settings)
        if self.peers is not None:
            trial.set_user_attr("asked", settings)
        return trial, key(settings)

    def _admissible(self, trial: Trial, name: Key) -> bool:
        """Return whether a candidate is to be launched; what is not is told without a launch."""
        score = self.history.scores().get(name)
        if name == self.history.reference:
            self._close(trial, 0.0, 0.0)
        elif not self.space.contains(dict(name)):
            self._close(trial, PENALTY, 1.0, "not in the space")
        elif self.history.condemned() & set(name):
            self._close(trial, PENALTY, 1.0, "holds a value that hung twice")
        elif score is not None and not score.count:
            self._close(trial, PENALTY, 1.0, score.reason)
        elif score is not None and score.count >= SAMPLED_AT_MOST * 2:
            self._close(trial, score.log, 0.0)
        else:
            return True
        return False

    def _close(self, trial: Trial, value: float, violation: float, reason: str = "") -> None:
        if self.peers is not None:
            if self.peers.lost(trial):
                return
            trial.set_user_attr("launches", len(self.history.seen) - self._told)
            self._told = len(self.history.seen)
        trial.set_constraint("outcome", violation)
        if reason:
            trial.set_user_attr("reason", reason)
        self.study.tell(trial, value)
        if self.peers is not None:
            self.peers.release()

    def _tell(self, trial: Trial, name: Key) -> None:
        if self.peers is not None and self.peers.lost(trial):
            return
        score = self.history.scores()[name]
        trial.set_user_attr("settings", dict(name))
        at = max(i for i, s in enumerate(self.history.seen) if s.key == name)
        last = self.history.seen[at]
        if last.sample is None:
            trial.set_user_attr("outcome", last.outcome)
            self._close(trial, PENALTY, 1.0, last.reason or last.outcome)
            return
        trial.set_user_attr("value_us", last.sample.value_us)
        if self.peers is not None:
            level = float(self.history.local_default()[at])
            trial.set_user_attr("log", math.log(last.sample.value_us) - level)
            trial.set_user_attr("guard", score.guard)
        trial.set_constraint("guard", score.guard)
        self._close(trial, score.log, 0.0)

    # -- what strategies see

    def _view(self) -> View:
        share = 0.5 if self.history.beside else 1 - 1 / DEFAULT_EVERY
        done = self._done()
        node = [zlib.crc32(self.peers.node.name.encode())] if self.peers is not None else []
        return View(
            space=self.space,
            history=self.history,
            left=math.floor((self.launches - done) * share),
            total=math.floor(self.launches * share),
            rng=np.random.default_rng([self.seed, done, *node]),
            walked=self._all,
        )

    def _all(self) -> list[Key]:
        """Return every settings of the space, or those around the best where it is wide."""
        if len(self.space.head) <= WIDE:
            return self.space.head
        around: dict[Key, None] = {}
        for score in self.history.ranking()[:5]:
            for near in self.space.neighbours(dict(score.key)):
                around.setdefault(key(near), None)
        return list(around)

    # -- after a kill

    def _recover(self, stored: Sequence[Stored]) -> None:
        """Take in the launches of an earlier part; finish or repeat the trials that it left."""
        by_trial: dict[int, list[Stored]] = {}
        for one in stored:
            self._see(self._name(one.asked), one.run)
            if one.trial is not None:
                by_trial.setdefault(one.trial, []).append(one)
        for frozen in abandoned(self.study):
            if self.peers is not None and not self.peers.is_mine(frozen):
                continue
            trial = Trial(self.study, frozen._trial_id)
            launched = [
                s
                for s in by_trial.get(frozen.number, [])
                if self._name(s.asked) != self.history.reference
            ]
            if launched:
                self._tell(trial, self._name(launched[-1].asked))
            else:
                params = dict(frozen.params)
                self.study.tell(frozen.number, state=TrialState.FAIL)
                if params:
                    self.study.enqueue_trial(params, user_attrs={"again": frozen.number})
                    self._queued += 1

    def _name(self, asked: Settings) -> Key:
        return key({n: v for n, v in asked.items() if self.base.get(n) != v})
