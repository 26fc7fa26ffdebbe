"""Statistics on launches. Pure; imports numpy and nothing of the package.

The unit is the launch: windows and replays of one launch are not independent of each other, so
they are summarised first (`launch_value`), and only the summaries of launches are compared.
Intervals are percentile bootstraps of medians (Efron & Tibshirani, An Introduction to the
Bootstrap, 13.3) with a fixed seed; tests are exact rank tests (Hollander & Wolfe, Nonparametric
Statistical Methods, 3.1 and 4.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
P99_SAMPLES = 200
"""Fewest samples for a 99th percentile: below, it is one of the two largest values."""
EXACT_PAIRS = 2500
"""Largest product of the two counts for the exact rank-sum test; above, the normal law."""

Floats = NDArray[np.float64]


def reduction(backend: str, mode: str = "graph") -> str:
    """Return how the windows of a launch are reduced across ranks.

    ``max`` for a fresh entry, and for MPI, whose windows end with their slowest rank; else
    ``median``: in a chain or a step the ranks go in lockstep, and the maximum would publish
    whichever rank hiccuped.

    >>> reduction("nccl"), reduction("nccl", "entry"), reduction("mpi")
    ('median', 'max', 'max')
    """
    return "max" if mode == "entry" or backend == "mpi" else "median"


def per_window(times: Sequence[Sequence[float]], how: str = "median") -> list[float]:
    """Reduce ``[rank][window]`` across ranks: ``median`` (chain, step), ``max`` (entry), ``min``.

    Windows that not every rank has are dropped.

    >>> per_window([[1.0, 2.0], [3.0, 2.5, 9.0]], "max")
    [3.0, 2.5]
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


def skew(times: Sequence[Sequence[float]]) -> float:
    """Return the median over windows of the slowest minus the fastest rank.

    >>> skew([[1.0, 2.0, 9.0], [3.0, 4.0, 5.0]])
    2.0
    """
    return float(median(max(window) - min(window) for window in zip(*times, strict=False)))


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, interpolated linearly between order statistics.

    >>> percentile([1.0, 2.0, 3.0, 4.0, 5.0], 95)
    4.8
    """
    return float(np.percentile(np.asarray(values, dtype=np.float64), percent))


def p99(values: Sequence[float]) -> float | None:
    """Return the 99th percentile, or None under 200 samples.

    >>> p99([1.0] * 199) is None, p99([1.0] * 200)
    (True, 1.0)
    """
    return percentile(values, 99) if len(values) >= P99_SAMPLES else None


def relative_sd(values: Sequence[float]) -> float | None:
    """Return the standard deviation over the mean, as a fraction; None for fewer than two.

    >>> round(relative_sd([99.0, 100.0, 101.0]), 3)
    0.01
    """
    if len(values) < 2:
        return None
    array = np.asarray(values, dtype=np.float64)
    return float(array.std(ddof=1) / array.mean())


def _medians(values: Sequence[float], rng: np.random.Generator) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    picks = rng.integers(0, len(array), size=(RESAMPLES, len(array)))
    medians: Floats = np.median(array[picks], axis=1)
    return medians


def _ends(medians: Floats, confidence: float) -> tuple[float, float]:
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(medians, [tail, 1.0 - tail])
    return float(low), float(high)


def median_interval(
    values: Sequence[float], *, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float] | None:
    """Return the bootstrap interval of the median over launches; None for fewer than two.

    With few launches no interval of the median can have the wished confidence: at best it spans
    from the smallest to the largest value, see `most_confidence`.

    >>> median_interval([10.0]) is None
    True
    >>> low, high = median_interval([9.9, 10.0, 10.0, 10.1, 10.2, 10.0])
    >>> 9.9 <= low <= 10.0 <= high <= 10.2
    True
    """
    if len(values) < 2:
        return None
    return _ends(_medians(values, np.random.default_rng(seed)), confidence)


def most_confidence(launches: int) -> float:
    """Return how often the smallest to the largest of some launches hold the true median.

    >>> most_confidence(5), most_confidence(6)
    (0.9375, 0.96875)
    """
    return 1.0 - 2.0 ** (1 - launches) if launches else 0.0


def ratio_of_medians(a: Sequence[float], b: Sequence[float], *, paired: bool) -> float:
    """Return B / A: the median of the pairs' ratios, or the ratio of the two medians.

    >>> ratio_of_medians([1.0, 2.0, 4.0], [2.0, 2.0, 4.0], paired=True)
    1.0
    >>> ratio_of_medians([1.0, 2.0, 4.0], [3.0], paired=False)
    1.5
    """
    if paired:
        return float(median(y / x for x, y in zip(a, b, strict=True)))
    return float(median(b) / median(a))


def ratio_interval(
    a: Sequence[float],
    b: Sequence[float],
    *,
    paired: bool,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Return the bootstrap interval of `ratio_of_medians`; None for fewer than two launches.

    Args:
        a: One value a launch, the reference.
        b: One value a launch; launch k belongs to launch k of `a` where `paired`.
        paired: Launches of both alternated in time: pairs are resampled, and slow changes of the
            machine fall out. Otherwise both are resampled on their own.
        confidence: Of the interval.
        seed: Of the resampling; the same data give the same interval.
    """
    if min(len(a), len(b)) < 2:
        return None
    rng = np.random.default_rng(seed)
    if paired:
        return _ends(_medians([y / x for x, y in zip(a, b, strict=True)], rng), confidence)
    reference = _medians(a, rng)
    return _ends(_medians(b, rng) / reference, confidence)


def smallest_p(launches_a: int, launches_b: int, *, paired: bool) -> float:
    """Return the smallest two-sided p that a rank test can reach with so many launches.

    If it is above the wished level, no data however far apart can show a difference: the answer
    is "too few launches", never "no difference".

    >>> round(smallest_p(4, 4, paired=False), 3), round(smallest_p(3, 3, paired=False), 3)
    (0.029, 0.1)
    >>> smallest_p(5, 5, paired=True), smallest_p(6, 6, paired=True)
    (0.0625, 0.03125)
    """
    if min(launches_a, launches_b) < 1:
        return 1.0
    if paired:
        return min(1.0, 2.0 ** (1 - min(launches_a, launches_b)))
    return min(1.0, 2.0 / math.comb(launches_a + launches_b, launches_a))


def launches_for(level: float, *, paired: bool) -> int:
    """Return the launches an arm needs before a rank test can reach `level`.

    >>> launches_for(0.05, paired=False), launches_for(0.005, paired=False)
    (4, 6)
    """
    return next(n for n in range(1, 100) if smallest_p(n, n, paired=paired) <= level)


def _mid_ranks(values: Floats) -> NDArray[np.int64]:
    """Return twice the rank of each value; ties share their middle rank, so twice is whole."""
    ordered = np.sort(values)
    below = np.searchsorted(ordered, values, side="left")
    upto = np.searchsorted(ordered, values, side="right")
    return np.asarray(below + upto + 1, dtype=np.int64)


def rank_sum_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided p of the Wilcoxon rank-sum (Mann-Whitney) test, exact also with ties.

    >>> round(rank_sum_p([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]), 4)
    0.0286
    >>> rank_sum_p([1.0, 2.0], [1.0, 2.0])
    1.0
    """
    doubled = _mid_ranks(np.asarray([*a, *b], dtype=np.float64))
    n, total = len(a), len(a) + len(b)
    seen = int(doubled[:n].sum())
    centre = n * (total + 1)  # twice the expected sum of ranks
    if n * len(b) > EXACT_PAIRS:
        variance = n * len(b) / (total * (total - 1)) * float(((doubled - total - 1) ** 2).sum())
        if variance == 0:
            return 1.0
        return math.erfc(max(0.0, abs(seen - centre) - 1) / math.sqrt(2 * variance))
    # ways[k, s]: probability-weighted subsets of k values with doubled rank sum s.
    ways = np.zeros((n + 1, int(doubled.sum()) + 1))
    ways[0, 0] = 1.0
    for rank in doubled:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    sums = np.arange(ways.shape[1])
    extreme = np.abs(sums - centre) >= abs(seen - centre)
    return min(1.0, float(ways[n, extreme].sum() / ways[n].sum()))


def signed_rank_p(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the two-sided p of the Wilcoxon signed-rank test on log ratios, exact also with ties.

    Equal pairs say nothing and are dropped.

    >>> signed_rank_p([1.0] * 6, [1.1, 1.2, 1.3, 1.4, 1.5, 1.6])
    0.03125
    """
    logs = np.log(np.asarray(b, dtype=np.float64)) - np.log(np.asarray(a, dtype=np.float64))
    logs = logs[logs != 0]
    if not len(logs):
        return 1.0
    doubled = _mid_ranks(np.abs(logs))
    seen = int(doubled[logs > 0].sum())
    chance = np.zeros(int(doubled.sum()) + 1)
    chance[0] = 1.0
    for rank in doubled:
        shifted = np.zeros_like(chance)
        shifted[rank:] = chance[: len(chance) - rank]
        chance = (chance + shifted) / 2.0
    centre = doubled.sum() / 2.0
    extreme = np.abs(np.arange(len(chance)) - centre) >= abs(seen - centre)
    return min(1.0, float(chance[extreme].sum()))


def holm(ps: Iterable[float]) -> list[float]:
    """Return p values adjusted for their number, so that one false alarm in all has the level.

    S. Holm, A simple sequentially rejective multiple test procedure, 1979.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    given = list(ps)
    adjusted = [1.0] * len(given)
    running = 0.0
    for place, index in enumerate(sorted(range(len(given)), key=given.__getitem__)):
        running = max(running, min(1.0, given[index] * (len(given) - place)))
        adjusted[index] = running
    return adjusted
