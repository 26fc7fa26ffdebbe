"""Combinations of choices that no launch has held yet: two settings may do what neither does alone.

The additive model cannot promise such a combination, so that a search which asked nothing else
would never launch one. A launch that moves every axis shows many pairs at once (a covering design).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from collbench.search.history import History
from collbench.search.model import Additive
from collbench.space.axes import UNSET, Key, Space, key

SURPRISE = 0.02
"""How much faster (log) than the sum of its choices the best must be for a look around it."""
HOPELESS = 0.10
"""A choice that is slower than this (log) alone is not tried with others."""

Pair = tuple[tuple[str, str], tuple[str, str]]


def beside_best(space: Space, history: History, names: Sequence[Key]) -> Key | None:
    """Return a neighbour of the best, where that is better than its choices promised alone.

    Or the best itself, where one launch is all that says so.

    Args:
        space: Says which choices settings are made of.
        history: The launches so far.
        names: What may be launched.
    """
    best = next(iter(history.ranking()), None)
    if best is None or len(choices_of(space, best.key)) < 2:
        return None
    expected = Additive(space, history, without=best.key).predict([best.key])
    noise = max(SURPRISE, 3 * history.error(best.count))
    if not expected or best.log > expected[0].log - noise:
        return None
    if best.count == 1:
        return best.key
    near = {key(settings) for settings in space.neighbours(dict(best.key))}
    found = Additive(space, history).predict([name for name in names if name in near])
    return min(found, key=lambda one: (one.log, one.key)).key if found else None


def unpaired(
    space: Space, history: History, names: Sequence[Key], rng: np.random.Generator
) -> Key | None:
    """Return what shows most pairs of choices for the first time, or None where none does.

    Args:
        space: Says which choices settings are made of.
        history: The launches so far.
        names: What may be launched.
        rng: Chooses among those that show as many.
    """
    scores = history.scores()
    seen = {pair for name, s in scores.items() if s.count for pair in pairs(space, name)}
    bad = {
        choice for name, s in scores.items() if (choice := _alone(space, name)) and s.log > HOPELESS
    }
    found = []
    for one in Additive(space, history).predict(names):
        choices = choices_of(space, one.key)
        new = len(pairs(space, one.key) - seen)
        if new and not bad & set(choices):
            found.append((new, one.key))
    return one_of_most(found, rng)


def one_of_most(found: Sequence[tuple[int, Key]], rng: np.random.Generator) -> Key | None:
    """Return one of the settings with the largest count; None where no count is above 0."""
    most = max((count for count, _ in found), default=0)
    best = sorted(name for count, name in found if count == most)
    return best[int(rng.integers(len(best)))] if most else None


def choices_of(space: Space, name: Key) -> list[tuple[str, str]]:
    """Return (axis, label) of every axis that settings move."""
    labels = space.labels_of(dict(name)) or {}
    return sorted((axis, label) for axis, label in labels.items() if label != UNSET)


def pairs(space: Space, name: Key) -> set[Pair]:
    """Return the pairs of choices that settings hold."""
    return set(itertools.combinations(choices_of(space, name), 2))


def _alone(space: Space, name: Key) -> tuple[str, str] | None:
    """Return the choice that settings are made of, or None where there are several."""
    choices = choices_of(space, name)
    return choices[0] if len(choices) == 1 else None
