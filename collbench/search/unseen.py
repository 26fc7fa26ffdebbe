"""Choices that no launch has held yet, where they cannot all be launched alone.

A condition, or a record that holds some combinations only, may keep a choice from standing alone;
and a space may have more choices than the search has launches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from collbench.search.history import History
from collbench.search.pairs import choices_of, one_of_most
from collbench.search.surprise import numbered
from collbench.space.axes import Axis, Choice, Key, Space, key

COARSE = 3
"""Choices of an axis that cover its range; then, where it holds the best, come those beside it."""
TRIES = 2
"""Launches that may fail before a choice counts as seen: it need not be what they failed for."""


def unseen(space: Space, history: History) -> set[tuple[str, str]]:
    """Return (axis, label) of every choice that no launch has held."""
    rest = {(axis.name, choice.label) for axis in space.axes for choice in axis.choices[1:]}
    failed: Counter[tuple[str, str]] = Counter()
    for name, score in history.scores().items():
        if score.count:
            rest.difference_update(choices_of(space, name))
        else:
            failed.update(choices_of(space, name))
    return {choice for choice in rest if failed[choice] < TRIES}


def covering(
    space: Space, history: History, names: Sequence[Key], rng: np.random.Generator
) -> Key | None:
    """Return what holds most choices for the first time, or None where none does.

    Args:
        space: Says which choices settings are made of.
        history: The launches so far.
        names: What may be launched.
        rng: Chooses among those that hold as many.
    """
    rest = unseen(space, history)
    if not rest:
        return None
    return one_of_most([(len(rest.intersection(choices_of(space, n))), n) for n in names], rng)


def onto(
    space: Space, history: History, base: Key, columns: Sequence[tuple[str, Sequence[Choice]]]
) -> Key | None:
    """Return `base` with one choice moved to one that no launch has held, axes in turn.

    The axis with the smallest part of its choices seen comes first.

    Args:
        space: Says what may be proposed.
        history: The launches so far.
        base: What the choice is tried on; empty: alone.
        columns: Axis and its choices, the most telling first.
    """
    rest = unseen(space, history)
    order = []
    for name, choices in columns:
        left = [choice for choice in choices if (name, choice.label) in rest]
        order.append((1 - len(left) / len(choices), -len(left), name, left))
    axes = {axis.name: axis for axis in space.axes}
    at = dict(choices_of(space, base))
    for *_, name, left in sorted(order, key=lambda one: one[:3]):
        axis = axes[name]
        if len(axis.choices) - 1 - len(left) >= COARSE and name in at:
            left = _nearest(axis, at[name], left)
        for choice in left:
            for start in (base, ()):
                moved = space.moved(dict(start), axis, choice)
                if moved is not None and _new(history, key(moved)):
                    return key(moved)
    return None


def _nearest(axis: Axis, label: str, left: Sequence[Choice]) -> list[Choice]:
    """Return choices by their distance from one, where they are numbers; else in their order."""
    places = {choice.label: place for place, choice in enumerate(numbered(axis, label))}
    far = len(places)
    return sorted(
        left, key=lambda c: abs(places[c.label] - places[label]) if c.label in places else far
    )


def _new(history: History, name: Key) -> bool:
    return name not in history.scores() and not history.condemned() & set(name)
