"""Strategies: given what was seen, what is launched next. Stateless, so that resume is free."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from collbench.errors import CollbenchError
from collbench.search.history import History, Score
from collbench.search.model import Additive
from collbench.search.surprise import surprising
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
    """Everything once, seeds first, then the best again."""

    def next(self, view: View) -> Key | None:
        """Return the next setting in an order fixed by the seed of the study."""
        for seed in view.space.seeds:
            if view.untried(dict(seed)):
                return seed
        rest = [name for name in view.walked() if view.new(name)]
        if rest:
            return rest[int(view.rng.integers(len(rest)))]
        return again(view)


class Coordinate:
    """Seeds, then every axis alone, then what the main effects promise, then the best again."""

    def __init__(self, *, tail: bool = True, sampler: bool = False) -> None:
        self._sampler = sampler

    def next(self, view: View) -> Key | None:
        """Return the next candidate, or None for the sampler's share."""
        for seed in view.space.seeds:
            if view.untried(dict(seed)):
                return seed
        reserve = max(2, round(TAIL * view.total))
        if view.left > reserve:
            single = next_single(view)
            if single is not None:
                return single
            doubt = surprising(view.space, view.history) or doubtful(view)
            if doubt is not None:
                return doubt
            if self._sampler and view.total > 40 and len(view.history.seen) % 3 == 2:
                return None
        surprise = surprising(view.space, view.history)
        if surprise is not None:
            return surprise
        promising = promise(view, combinations=view.left > reserve)
        if promising is not None:
            return promising
        return again(view)


TAIL = 0.2
"""Share of the search kept for launching the best again: the argmin of single launches lies."""


def next_single(view: View) -> Key | None:
    """Return the next setting of one axis alone, axes in turn, coarse values first."""
    columns = []
    for axis in view.space.axes:
        moved = [view.space.moved({}, axis, choice) for choice in coarse(list(axis.choices[1:]))]
        columns.append([key(m) for m in moved if m is not None and view.untried(m)])
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
    best = next(iter(history.ranking()), None)
    if best is not None and -best.log > 3 * history.error(best.count):
        return None
    slow = [
        s
        for s in history.scores().values()
        if s.count == 1 and max(0.04, 2.5 * history.error(1)) < s.log < math.log(1.45)
    ]
    slow.sort(key=lambda s: s.log)
    return slow[0].key if slow else None


def promise(view: View, *, combinations: bool) -> Key | None:
    """Return what could be best: a combination not launched yet, or a measured one again.

    Both are judged by an optimistic bound, score less one standard error.
    """
    history = view.history
    ranking = [s for s in history.ranking() if s.count < MOST]
    measured = [(s.log - history.error(s.count), s.key) for s in ranking]
    found: list[tuple[float, Key]] = measured[:6]
    if combinations:
        barred = _barred(history.scores().values(), view)
        names = [n for n in view.walked() if view.new(n) and not any(b <= set(n) for b in barred)]
        model = Additive(view.space, history)
        found += [(p.log - p.error, p.key) for p in model.predict(names)]
    return min(found)[1] if found else None


MOST = 6
"""Launches of one candidate in the search; more belong to the confirmation."""


def _barred(scores: object, view: View) -> list[set[tuple[str, str]]]:
    """Return the settings of single axes that fail the guard or do not work: no combinations."""
    found = []
    for one in view.history.scores().values():
        labels = view.space.labels_of(dict(one.key)) or {}
        moved = [label for label in labels.values() if label != "unset"]
        if len(moved) == 1 and not one.feasible:
            found.append(set(one.key))
    return found


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


def best_of(ranking: list[Score]) -> Score | None:
    """Return the first of a ranking, or None."""
    return ranking[0] if ranking else None
