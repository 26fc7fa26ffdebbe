"""Every launch of every phase, kept in the study's storage, so that a killed sweep loses none.

A launch is found again by what was asked (phase, purpose, settings, by exec or not) and by how
often it was asked before: the phases after the search ask for the same launches in the same order
when they run again, so each gets its stored answer until the stored ones are used up.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import optuna

from collbench.job import Run, Settings, to_plain
from collbench.lab import Lab, Purpose, StuckError
from collbench.record import validate_run

PREFIX = "launch/"
_Asked = tuple[str, str, str, bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """One launch in the ledger."""

    index: int
    phase: str
    purpose: str
    by_exec: bool
    run: Run
    trial: int | None = None
    """Number of the Optuna trial it belongs to (search)."""
    asked: dict[str, str]


class Ledger:
    """The launches of one study, in the order they ended."""

    def __init__(self, study: optuna.Study) -> None:
        self._study = study
        self.reused = 0
        self.outcomes: Counter[str] = Counter()
        self.runs: list[Stored] = []
        """Every launch of this study so far that was used, old and new."""
        self._waiting: dict[_Asked, deque[Stored]] = defaultdict(deque)
        self._search: list[Stored] = []
        self._next = 0
        attributes = study.user_attrs
        for name in sorted(n for n in attributes if n.startswith(PREFIX)):
            self._load(int(name.removeprefix(PREFIX)), attributes[name])

    def _load(self, index: int, plain: dict[str, Any]) -> None:
        run = validate_run(plain["run"], where=f"launch {index} in the storage")
        stored = Stored(
            index=index,
            phase=plain["phase"],
            purpose=plain["purpose"],
            by_exec=plain["by_exec"],
            trial=plain.get("trial"),
            run=run,
            asked=plain["asked"],
        )
        self._next = max(self._next, index + 1)
        if stored.phase == "search":
            self._search.append(stored)
        else:
            self._waiting[
                _asked(stored.phase, stored.purpose, stored.asked, stored.by_exec)
            ].append(stored)

    def take_search(self) -> Sequence[Stored]:
        """Return the launches of the search that are stored, in order; each is given once."""
        found, self._search = self._search, []
        for stored in found:
            self._use(stored, reused=True)
        return found

    def take(self, phase: str, purpose: str, settings: Settings, by_exec: bool) -> Run | None:
        """Return a stored launch that answers what is asked, or None."""
        waiting = self._waiting.get(_asked(phase, purpose, settings, by_exec))
        if not waiting:
            return None
        stored = waiting.popleft()
        self._use(stored, reused=True)
        return stored.run

    def put(
        self,
        phase: str,
        purpose: str,
        settings: Settings,
        by_exec: bool,
        run: Run,
        trial: int | None,
    ) -> Stored:
        """Store a launch that has just ended."""
        stored = Stored(
            index=self._next,
            phase=phase,
            purpose=purpose,
            by_exec=by_exec,
            run=run,
            trial=trial,
            asked=dict(settings),
        )
        self._next += 1
        plain = {
            "phase": phase,
            "purpose": purpose,
            "by_exec": by_exec,
            "asked": dict(settings),
            "trial": trial,
            "run": to_plain(run),
        }
        self._study.set_user_attr(f"{PREFIX}{stored.index:06d}", plain)
        self._use(stored, reused=False)
        return stored

    def seconds_each(self) -> float | None:
        """Return the median time of a launch, reused ones too; None where none was timed."""
        known = [stored.run.seconds for stored in self.runs if stored.run.seconds > 0]
        return median(known) if known else None

    def _use(self, stored: Stored, *, reused: bool) -> None:
        self.runs.append(stored)
        self.outcomes[stored.run.outcome] += 1
        self.reused += reused


def _asked(phase: str, purpose: str, settings: Settings, by_exec: bool) -> _Asked:
    return phase, purpose, json.dumps(sorted(settings.items())), by_exec


class LedgerLab:
    """A lab that answers from the ledger first and stores what it has to launch."""

    def __init__(self, lab: Lab, ledger: Ledger) -> None:
        self._lab = lab
        self.ledger = ledger
        self.phase = "aa"
        self.trial: int | None = None
        """The Optuna trial that launches belong to, while one is running."""

    def launch(self, settings: Settings, purpose: Purpose, *, env_file: Path | None = None) -> Run:
        """Answer one launch; see `collbench.lab.Lab.launch`."""
        by_exec = env_file is not None
        if self.phase != "search":
            stored = self.ledger.take(self.phase, purpose, settings, by_exec)
            if stored is not None:
                return stored
        try:
            run = self._lab.launch(settings, purpose, env_file=env_file)
        except StuckError as stuck:
            self.ledger.put(self.phase, purpose, settings, by_exec, stuck.run, self.trial)
            raise
        self.ledger.put(self.phase, purpose, settings, by_exec, run, self.trial)
        return run

    def launch_communicators(
        self, shared: Settings, each: Sequence[Settings], purpose: Purpose
    ) -> list[Run]:
        """Try several sets in one set of processes; not stored, see `collbench.lab.Lab`."""
        return self._lab.launch_communicators(shared, each, purpose)
