"""Statistics on launches. Pure; scipy is imported inside the functions that need it.

The unit is the launch: windows and replays of one launch are summarised first (`window_median`),
and only the summaries of launches are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median


def per_window(times: Sequence[Sequence[float]], how: str = "median") -> list[float]:
    """Reduce ``[rank][window]`` across ranks: ``median`` (chain, step), ``max`` (entry), ``min``.

    Windows that not every rank has are dropped.
    """
    reduce: dict[str, Callable[[Sequence[float]], float]]
    reduce = {"median": median, "max": max, "min": min}
    return [float(reduce[how](window)) for window in zip(*times, strict=False)]


def launch_value(times: Sequence[Sequence[float]], how: str = "median") -> float:
    """Return the value of one launch: median over windows of the reduction across ranks.

    >>> launch_value([[1.0, 2.0, 9.0], [3.0, 4.0, 5.0]])
    3.0
    """
    return float(median(per_window(times, how)))
