"""What the search has seen: launches in order, scored against the default near them.

Scores are log ratios, candidate / default of the same moment: beside it (CPU hosts jump between
speed regimes) or between the defaults launched every few trials (GPUs drift slowly).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from collbench.confirm.noise import Floor
from collbench.confirm.objective import Sample
from collbench.search.level import inliers, smoothed
from collbench.space.axes import Key

OUTLIER = 0.06
"""A launch this much slower (log) than its like is taken for an outlier once a second one says
otherwise; recorded outliers are 10 to 40 %."""
SINGLE = 0.10
"""How far (log) a guarded case may be beyond its limit on one launch without failing the guard."""
CONDEMNING_HANGS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One launch of the search."""

    key: Key
    outcome: str
    sample: Sample | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """One launch on another node, scored there against that node's own default."""

    key: Key
    log: float | None
    """Log ratio; None where the launch did not end well."""
    guard: float
    outcome: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """All launches of one candidate together."""

    key: Key
    log: float
    """Robust centre of its log ratios; inf where no launch ended well."""
    count: int
    """Launches that ended well."""
    guard: float
    """Worst log ratio over guarded cases, less the limit or the noise; <= 0 is inside."""
    outcome: str = "ok"
    reason: str = ""

    @property
    def feasible(self) -> bool:
        """Return whether it may win; a single slow launch does not yet fail the guard."""
        within = self.guard <= 0 or (self.count == 1 and self.guard < SINGLE)
        return self.outcome == "ok" and self.count > 0 and within


@dataclass(kw_only=True)
class History:
    """The launches of one search and what follows from them."""

    reference: Key
    sd: float
    beside: bool
    slower: float = 0.03
    case_sd: Mapping[str, float] = field(default_factory=dict)
    """Noise of the guarded cases; that of the objective where unknown."""
    before: Sequence[Sample] = ()
    """The last default launches before the search (A/A): the first of the local defaults."""
    seen: list[Seen] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    hangs: Counter[tuple[str, str]] = field(default_factory=Counter)
    fine: Counter[tuple[str, str]] = field(default_factory=Counter)
    _scores: dict[Key, Score] | None = None

    @classmethod
    def after(cls, floor: Floor, *, beside: bool, slower: float) -> History:
        """Return an empty history that begins where the noise floor ended."""
        return cls(
            reference=(),
            sd=floor.sd,
            beside=beside,
            slower=slower,
            case_sd=floor.case_sd,
            before=floor.samples,
        )

    def add(self, one: Seen) -> None:
        """Take in one launch."""
        self.seen.append(one)
        self._scores = None
        if one.outcome == "hung":
            self.hangs.update(one.key)
        elif one.outcome == "ok":
            self.fine.update(one.key)

    def hear(self, one: Heard) -> None:
        """Take in one launch on another node."""
        self.heard.append(one)
        self._scores = None
        if one.outcome == "hung":
            self.hangs.update(one.key)
        elif one.log is not None:
            self.fine.update(one.key)

    def condemned(self) -> set[tuple[str, str]]:
        """Return the (variable, value) that hung twice and more often than they ended well."""
        return {
            value
            for value, count in self.hangs.items()
            if count >= CONDEMNING_HANGS and count > self.fine[value]
        }

    def defaults(self) -> list[int]:
        """Return where the reference ended well, as indices into `seen`."""
        return [i for i, s in enumerate(self.seen) if s.key == self.reference and s.sample]

    def doubtful_default(self) -> bool:
        """Return whether the last launch is a default so slow that it has to be repeated.

        A second one in a row is believed: then the machine has changed its pace.
        """
        if self.beside or not self.seen or self.seen[-1].key != self.reference:
            return False
        last = self.seen[-1].sample
        if last is None or (len(self.seen) > 1 and self.seen[-2].key == self.reference):
            return False
        earlier = [self.seen[i].sample for i in self.defaults()[:-1]]
        level = [s.value_us for s in [*self.before, *earlier] if s][-3:]
        return bool(level) and math.log(last.value_us / float(np.median(level))) > self._far()

    def _far(self) -> float:
        return max(OUTLIER, 6 * self.sd)

    def local_default(self) -> NDArray[np.float64]:
        """Return the log default objective at every index of `seen`; nan where unknown."""
        return self._levels(())[:, 0]

    def _levels(self, cases: Sequence[str]) -> NDArray[np.float64]:
        """Return ``[index][objective, *cases]``: the log default at every index of `seen`."""
        points = [(i - len(self.before), s) for i, s in enumerate(self.before)]
        for i in self.defaults():
            found = self.seen[i].sample
            assert found is not None
            points.append((i, found))
        points = [(i, s) for i, s in points if all(case in s.cases for case in cases)]
        if not points:
            return np.full((len(self.seen), 1 + len(cases)), np.nan)
        at = np.array([i for i, _ in points])
        logs = np.log([[s.value_us, *(s.cases[c] for c in cases)] for _, s in points])
        where = np.arange(len(self.seen))
        if self.beside:
            last = np.clip(np.searchsorted(at, where, side="right") - 1, 0, None)
            return np.asarray(logs[last])
        keep = inliers(logs[:, 0], self._far())
        return smoothed(at[keep], logs[keep], len(self.seen), self.sd)

    def scores(self) -> dict[Key, Score]:
        """Return the score of every candidate that was launched."""
        if self._scores is None:
            self._scores = self._score()
        return self._scores

    def _score(self) -> dict[Key, Score]:
        names = sorted({c for one in self.seen if one.sample for c in one.sample.cases})
        levels = self._levels(names)
        if names and np.isnan(levels).all():
            names, levels = [], self._levels(())
        logs: dict[Key, list[float]] = {}
        last_bad: dict[Key, Seen | Heard] = {}
        elsewhere: dict[Key, float] = {}
        guards: dict[Key, dict[str, list[float]]] = {}
        for i, one in enumerate(self.seen):
            if one.key == self.reference:
                continue
            logs.setdefault(one.key, [])
            if one.sample is None:
                last_bad[one.key] = one
                continue
            logs[one.key].append(math.log(one.sample.value_us) - float(levels[i, 0]))
            for column, case in enumerate(names, 1):
                if case not in one.sample.cases:
                    continue
                ratio = math.log(one.sample.cases[case]) - float(levels[i, column])
                guards.setdefault(one.key, {}).setdefault(case, []).append(ratio)
        for there in self.heard:
            logs.setdefault(there.key, [])
            if there.log is None:
                last_bad[there.key] = there
                continue
            logs[there.key].append(there.log)
            elsewhere[there.key] = max(elsewhere.get(there.key, -math.inf), there.guard)
        found = {}
        for name, values in logs.items():
            bad = last_bad.get(name)
            found[name] = Score(
                key=name,
                log=centre(values, self._far()) if values else math.inf,
                count=len(values),
                guard=max(self._guard(guards.get(name, {})), elsewhere.get(name, -math.inf)),
                outcome=bad.outcome if bad else "ok",
                reason=bad.reason if bad else "",
            )
        return found

    def _guard(self, cases: dict[str, list[float]]) -> float:
        limit = math.log1p(self.slower)
        worst = -limit
        for case, values in cases.items():
            # The limit itself where it is beyond what noise makes of the worst of several cases.
            noise = 3.5 * self.error(len(values), self.case_sd.get(case))
            worst = max(worst, centre(values, self._far()) - max(limit, noise))
        return worst

    def case_logs(self, case: str) -> dict[Key, float]:
        """Return the log ratio of one case for every candidate that was timed on it."""
        levels = self._levels((case,))[:, 1]
        logs: dict[Key, list[float]] = {}
        for i, one in enumerate(self.seen):
            if one.key != self.reference and one.sample and case in one.sample.cases:
                ratio = math.log(one.sample.cases[case]) - float(levels[i])
                logs.setdefault(one.key, []).append(ratio)
        return {name: centre(values, self._far()) for name, values in logs.items()}

    def error(self, count: int, sd: float | None = None) -> float:
        """Return the standard error of a score made of `count` launches.

        Args:
            count: Launches.
            sd: Noise of one launch; that of the objective if None.
        """
        share = 1.0 / max(count, 1) if self.beside else 0.5
        return (self.sd if sd is None else sd) * math.sqrt(1 / max(count, 1) + share)

    def ranking(self) -> list[Score]:
        """Return the candidates that may win, best first; fewer settings win exact ties."""
        good = [s for s in self.scores().values() if s.feasible and not self._has_condemned(s.key)]
        return sorted(good, key=lambda s: (s.log, len(s.key), s.key))

    def _has_condemned(self, name: Key) -> bool:
        return bool(self.condemned() & set(name))


def centre(values: Sequence[float], far: float) -> float:
    """Return the mean of log ratios without those far from the rest.

    Outliers are slower, so of two the lower one counts. From three on the median says which: a
    ratio is too low as well, where it was the default beside it that was slow.
    """
    middle = float(np.median(values)) if len(values) > 2 else min(values)
    kept = [v for v in values if abs(v - middle) <= far] or [middle]
    return sum(kept) / len(kept)
