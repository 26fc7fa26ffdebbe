"""Decode against prefill: the candidates of a search that no other beats in both."""

from __future__ import annotations

import math
from collections.abc import Mapping

from collbench.confirm.objective import PREFILL, STEP
from collbench.search.history import History
from collbench.search.result import FrontPoint
from collbench.space.axes import Key


def front(history: History, base: Mapping[str, str]) -> tuple[FrontPoint, ...]:
    """Return the front of a search under ``pareto``, the best for decode first.

    The default is a point like any other, at (1, 1). The knee is the point with the least
    geometric mean of both ratios: what the confirmation went for.
    """
    decode, prefill = history.case_logs(STEP), history.case_logs(PREFILL)
    good = {s.key for s in history.scores().values() if s.outcome == "ok" and s.count}
    points: dict[Key, tuple[float, float]] = {(): (0.0, 0.0)}
    points |= {n: (decode[n], prefill[n]) for n in decode if n in prefill and n in good}
    noise = history.error(1)
    kept = {
        n: p
        for n, p in points.items()
        if not any(_beats((m, q), (n, p), noise) for m, q in points.items() if m != n)
    }
    knee = min(kept, key=lambda n: (sum(kept[n]), len(n), n))
    return tuple(
        FrontPoint(
            settings=dict(base) | dict(name),
            decode_ratio=math.exp(logs[0]),
            prefill_ratio=math.exp(logs[1]),
            knee=name == knee,
        )
        for name, logs in sorted(kept.items(), key=lambda item: item[1])
    )


_Point = tuple[Key, tuple[float, float]]


def _beats(one: _Point, other: _Point, noise: float) -> bool:
    """Return whether a point makes another superfluous.

    By fewer settings, where it is as good within noise in both; or by being better in one beyond
    the noise and not worse in the other.
    """
    (name, logs), (rest, against) = one, other
    worse = max(a - b for a, b in zip(logs, against, strict=True))
    better = max(b - a for a, b in zip(logs, against, strict=True))
    simpler = (len(name), sum(logs), name) < (len(rest), sum(against), rest)
    return (worse <= noise and simpler) or (worse <= 0 and better > noise)
