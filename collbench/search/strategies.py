"""Strategies: given what was seen, what is launched next. Stateless, so that resume is free."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from collbench.errors import CollbenchError
from collbench.search.history import OUTLIER, SINGLE, History
from collbench.search.model import Additive
from collbench.search.pairs import beside_best, choices_of, unpaired
from collbench.search.surprise import surprising
from collbench.search.unseen import covering, onto
from collbench.space.axes import Choice, Key, Space, key

STRATEGIES = ("auto", "exhaustive", "coordinate", "tpe", "random")


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """What a strategy sees."""

    space: Space
    history: History
    left: int
    """Launches of candidates that are left."""
    total: int
    """Launches of candidates in the whole search."""
    rng: np.random.Generator
    walked: Callable[[], list[Key]] = field(default=list)
    """Every settings of the space, or of a neighbourhood where the space is wide."""

    def untried(self, settings: dict[str, str] | None) -> bool:
        """Return whether these settings may be proposed and were not launched yet."""
        return settings is not None and self.new(key(settings))

    def new(self, name: Key) -> bool:
        """Return whether a candidate was not launched yet, is allowed and not condemned."""
        return (
            name != self.history.reference
            and name not in self.history.scores()
            and not (self.history.condemned() & set(name))
        )


class Strategy(Protocol):
    """Chooses the next candidate."""

    def next(self, view: View) -> Key | None:
        """Return the next candidate; None leaves the choice to the study's sampler."""


class Sampled:
    """Leaves every choice to the sampler of the study (random, plain TPE)."""

    def next(self, view: View) -> Key | None:
        """Return None."""
        return None


class Exhaustive:
    """Everything once, seeds first, then a second time from the best on, then the best again."""

    def next(self, view: View) -> Key | None:
        """Return the next setting in an order fixed by the seed of the study."""
        for seed in view.space.seeds:
            if view.untried(dict(seed)):
                return seed
        rest = [name for name in view.walked() if view.new(name)]
        if rest:
            return rest[int(view.rng.integers(len(rest)))]
        # What was launched once only may have been slow for no reason of its own.
        second = surprising(view.space, view.history) or (
            once(view) if view.left > tail(view) else None
        )
        return second or again(view)


class Coordinate:
    """Seeds, then every axis alone, then what the main effects promise, then the best again."""

    def __init__(self, *, tail: bool = True, sampler: bool = False) -> None:
        self._sampler = sampler

    def next(self, view: View) -> Key | None:
        """Return the next candidate, or None for the sampler's share."""
        for seed in view.space.seeds:
            if view.untried(dict(seed)):
                return seed
        # Where nothing gains yet, there is nothing to launch again.
        reserve = tail(view) if _gains(view) else 0
        if view.left > reserve:
            single = next_single(view, view.left - reserve)
            if single is not None:
                return single
            covered = covering(view.space, view.history, _combinations(view, 0.0), view.rng)
            if covered is not None:
                return covered
            doubt = surprising(view.space, view.history) or doubtful(view)
            if doubt is not None:
                return doubt
            if self._sampler and view.total > 40 and len(view.history.seen) % 3 == 2:
                return None
        surprise = surprising(view.space, view.history)
        if surprise is not None:
            return surprise
        promising = promise(view, explore=view.left > reserve)
        if promising is not None:
            return promising
        return again(view)


TAIL = 0.2
"""Share of the search kept for launching the best again: the argmin of single launches lies."""
MOST_OUTLYING = math.log(1.45)
"""Scores above it are no outliers: those end before."""


def tail(view: View) -> int:
    """Return the launches kept for launching the best again."""
    return max(2, round(TAIL * view.total))


def once(view: View) -> Key | None:
    """Return the best of what was launched once and is no slower than an outlier makes it.

    What fails the guard on a fast launch does so by itself.
    """
    found = [
        (s.log, s.key)
        for s in view.history.scores().values()
        if s.count == 1 and s.outcome == "ok" and (s.feasible or OUTLIER < s.log < MOST_OUTLYING)
        if not view.history.condemned() & set(s.key)
    ]
    return min(found)[1] if found else None


def next_single(view: View, room: int) -> Key | None:
    """Return the next setting of one axis alone, axes in turn, coarse values first.

    Where more are left than the `room` of launches allows, what no launch has held is tried on the
    best instead, so that the search ends with combinations too.
    """
    columns, choices = [], []
    for axis in view.space.axes:
        ordered = coarse(list(axis.choices[1:]))
        choices.append((axis.name, ordered))
        moved = [view.space.moved({}, axis, choice) for choice in ordered]
        columns.append([key(m) for m in moved if m is not None and view.untried(m)])
    if sum(map(len, columns)) > room:
        best = next(iter(view.history.ranking()), None)
        base = best.key if best and best.log < -view.history.error(best.count) else ()
        return onto(view.space, view.history, base, choices)
    columns.sort(key=len, reverse=True)
    for name in (column[0] for column in columns if column):
        return name
    return None


def coarse(values: list[Choice]) -> list[Choice]:
    """Return ordered values so that the first few cover the range: middle, ends, then between."""
    order: list[Choice] = []
    spans = [(0, len(values) - 1)]
    while spans:
        low, high = spans.pop(0)
        if low > high:
            continue
        middle = (low + high + 1) // 2
        order.append(values[middle])
        spans += [(middle + 1, high), (low, middle - 1)]
    return order


def doubtful(view: View) -> Key | None:
    """Return a slow single launch worth repeating, where nothing has shown a gain yet.

    One launch in twenty is 10 to 40 % slow for no reason of its own, and would hide a good choice.
    """
    history = view.history
    if _gains(view):
        return None
    slow = [
        s
        for s in history.scores().values()
        if s.count == 1 and max(0.04, 2.5 * history.error(1)) < s.log < MOST_OUTLYING
    ]
    slow.sort(key=lambda s: s.log)
    return slow[0].key if slow else None


def promise(view: View, *, explore: bool) -> Key | None:
    """Return what could be best: a combination not launched yet, or a measured one again.

    While there is room to explore, both are judged by an optimistic bound, score less one standard
    error, and before a measured one is repeated, choices are tried together that never were.
    Later, a combination has to promise more than the best has shown, by a pessimistic bound.
    """
    history = view.history
    ranking = [s for s in history.ranking() if s.count < MOST]
    measured = [(s.log - history.error(s.count), s.key) for s in ranking][:6]
    names = _combinations(view, 0.0)
    predicted = Additive(view.space, history).predict(names)
    if explore:
        # Sums of what is all noise promise nothing.
        worth = math.inf if _gains(view) else -3 * history.error(1)
        promised = min(((p.log - p.error, p.key) for p in predicted if p.log < worth), default=None)
        if promised is not None and (not measured or promised < measured[0]):
            return promised[1]
        together = _combinations(view, SINGLE)
        untried = beside_best(view.space, history, together)
        untried = untried or unpaired(view.space, history, together, view.rng)
        if untried is not None:
            return untried
    else:
        best = ranking[0].log if ranking else 0.0
        sure = min(((p.log, p.key) for p in predicted if p.log + p.error < best), default=None)
        if sure is not None:
            return sure[1]
    return min(measured)[1] if measured else None


MOST = 6
"""Launches of one candidate in the search; more belong to the confirmation."""


def _gains(view: View) -> bool:
    """Return whether some candidate is faster than the default beyond noise."""
    best = next(iter(view.history.ranking()), None)
    return best is not None and -best.log > 3 * view.history.error(best.count)


def _combinations(view: View, guard: float) -> list[Key]:
    """Return what was not launched, without choices that do not work or fail the guard alone.

    On one launch too: a launch that is slow for no reason of its own is the rarer case.

    Args:
        view: What was seen.
        guard: How far (log) beyond the guard a choice may be: two may do what neither does alone.
    """
    scores = view.history.scores().values()
    bad = [one for one in scores if one.outcome != "ok" or not one.count or one.guard > guard]
    barred = [set(one.key) for one in bad if len(choices_of(view.space, one.key)) == 1]
    return [n for n in view.walked() if view.new(n) and not any(b <= set(n) for b in barred)]


def again(view: View) -> Key | None:
    """Return the candidate whose repetition tells most: the best by its optimistic bound."""
    history = view.history
    ranking = [s for s in history.ranking() if s.count < MOST]
    if not ranking:
        return None
    return min(ranking, key=lambda s: s.log - history.error(s.count)).key


def choose(name: str, space_size: int, launches: int) -> tuple[Strategy, str]:
    """Return the strategy of a name and what it resolved to.

    ``auto``: exhaustive where the whole space fits the budget and some launches are left to repeat
    the best; otherwise coordinate descent with a share for TPE.

    Raises:
        CollbenchError: unknown name.
    """
    if name not in STRATEGIES:
        raise CollbenchError(
            f"--strategy {name!r} is unknown", fix=f"choose one of {', '.join(STRATEGIES)}"
        )
    if name == "auto":
        name = "exhaustive" if space_size * 1.2 <= launches else "coordinate+tpe"
    if name == "exhaustive":
        return Exhaustive(), name
    if name in ("random", "tpe"):
        return Sampled(), name
    return Coordinate(sampler=name == "coordinate+tpe"), name
