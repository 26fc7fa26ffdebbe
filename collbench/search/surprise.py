"""Single launches that are slower than everything around them says: worth a second look.

One launch in twenty is 10 to 40 % slow for no reason of its own. Where that launch was a
candidate's only one, it hides the candidate; these are the ones where something else speaks
against the reading: the values on either side of it, or the sum of the effects of its choices.
"""

from __future__ import annotations

import math

from collbench.search.history import OUTLIER, History, Score
from collbench.search.model import Additive
from collbench.space.axes import Axis, Choice, Key, Space, key

MOST = math.log(1.5)
"""Readings that much above what is expected are taken at their word: outliers end before."""


def surprising(space: Space, history: History) -> Key | None:
    """Return the candidate launched once that most deserves a second launch, or None.

    Only where what is expected of it would make it (nearly) the best.
    """
    ranking = history.ranking()
    if not ranking:
        return None
    far = max(OUTLIER, 4 * history.error(1))
    reach = ranking[0].log + 2 * history.error(1)
    found: list[tuple[float, Key]] = []
    for score in history.scores().values():
        if score.count != 1 or score.outcome != "ok" or history.condemned() & set(score.key):
            continue
        expected = _expected(space, history, score)
        if expected is not None and expected < reach and far < score.log - expected < MOST:
            found.append((expected, score.key))
    return min(found)[1] if found else None


def _expected(space: Space, history: History, score: Score) -> float | None:
    """Return what the rest of the launches expect of a candidate, as a log ratio."""
    labels = space.labels_of(dict(score.key)) or {}
    moved = [axis for axis in space.axes if labels.get(axis.name, "unset") != "unset"]
    if len(moved) == 1:
        return _between(space, history, moved[0], labels[moved[0].name])
    predicted = Additive(space, history, without=score.key).predict([score.key])
    return predicted[0].log if predicted else None


def _between(space: Space, history: History, axis: Axis, label: str) -> float | None:
    """Return the slower of the two values next to one on an axis of numbers, or None."""
    family = numbered(axis, label)
    at = next((i for i, c in enumerate(family) if c.label == label), None)
    if at is None or not 0 < at < len(family) - 1:
        return None
    logs = []
    for near in (family[at - 1], family[at + 1]):
        moved = space.moved({}, axis, near)
        score = history.scores().get(key(moved)) if moved is not None else None
        if score is None or not score.feasible:
            return None
        logs.append(score.log)
    return max(logs)


def numbered(axis: Axis, label: str) -> list[Choice]:
    """Return the choices that set the same variables to numbers, in the order of the numbers."""
    own = [name for name, _ in axis.choice(label).settings]
    same = [c for c in axis.choices if [n for n, _ in c.settings] == own]
    if not all(v.isdigit() for c in same for _, v in c.settings):
        return []
    return sorted(same, key=lambda c: [int(v) for _, v in c.settings])
