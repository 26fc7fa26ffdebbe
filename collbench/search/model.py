"""What the launches so far say about settings not launched yet: main effects, nothing more.

Recorded landscapes are close to additive in log time (reference simulations of coordinate descent
against TPE say the same), so the sum of the effects of the choices ranks combinations well enough
to decide which to launch next. It never decides what is adopted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collbench.search.history import History, Score
from collbench.space.axes import Key, Space

CLIP = 0.35
"""Scores above it (40 % slower) are cut: how bad a bad choice is must not bend the fit."""
RIDGE = 0.3


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """A candidate that was not launched yet."""

    key: Key
    log: float
    error: float


class Additive:
    """Ridge regression of scores on the choices of the axes, the default at zero."""

    def __init__(self, space: Space, history: History, *, without: Key | None = None) -> None:
        self._space = space
        self._column: dict[tuple[str, str], int] = {}
        for axis in space.axes:
            for choice in axis.choices[1:]:
                self._column[axis.name, choice.label] = len(self._column)
        scores = [s for s in history.scores().values() if s.count and s.key != without]
        rows = [self._row(s.key) for s in scores]
        size = len(self._column)
        matrix = np.array([r for r in rows if r is not None]).reshape(-1, size)
        used = [s for s, r in zip(scores, rows, strict=True) if r is not None]
        values = np.array([min(s.log, CLIP) for s in used])
        weights = np.array([self._weight(s, history) for s in used])
        gram = matrix.T @ (matrix * weights[:, None]) + RIDGE * np.eye(size)
        self._inverse = np.linalg.inv(gram)
        self._effects = self._inverse @ (matrix.T @ (weights * values))
        residual = values - matrix @ self._effects if len(values) else np.zeros(0)
        spread = float(np.sqrt(np.mean(residual**2))) if len(residual) else 0.0
        self._sd = max(spread, history.error(1))
        self._known = np.asarray(matrix != 0).any(axis=0)

    @staticmethod
    def _weight(score: Score, history: History) -> float:
        return (history.error(1) / history.error(score.count)) ** 2

    def _row(self, name: Key) -> np.ndarray | None:
        labels = self._space.labels_of(dict(name))
        if labels is None:
            return None
        row = np.zeros(len(self._column))
        for axis, label in labels.items():
            index = self._column.get((axis, label))
            if index is not None:
                row[index] = 1.0
        return row

    def predict(self, names: Sequence[Key]) -> list[Prediction]:
        """Return predictions for the settings whose every choice has been seen."""
        found = []
        for name in names:
            row = self._row(name)
            if row is None or (row.astype(bool) & ~self._known).any():
                continue
            error = self._sd * float(np.sqrt(max(row @ self._inverse @ row, 0.0)))
            found.append(Prediction(key=name, log=float(row @ self._effects), error=error))
        return found
