"""Statistics of paired launches, on log ratios: candidate / default of neighbours in time.

The estimate that is published is the median ratio with a bootstrap interval over pairs. The
decision uses the exact one-sided signed-rank bound: of every hundred pairs some ten hold an
outlying launch, and a rank test keeps its level and its power there (Hollander & Wolfe,
Nonparametric Statistical Methods, 3.1 to 3.3).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
_MAD_TO_SD = 1.4826
_Z = {0.999: 3.0902, 0.995: 2.5758, 0.9: 1.2816, 0.95: 1.6449}


def median_log(logs: Sequence[float]) -> float:
    """Return the median log ratio."""
    return float(np.median(np.asarray(logs, dtype=np.float64)))


def interval(logs: Sequence[float], *, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Return the bootstrap interval of the median ratio (percentile method, pairs resampled)."""
    values = np.asarray(logs, dtype=np.float64)
    if len(values) < 2:
        only = float(np.exp(values[0])) if len(values) else math.nan
        return only, only
    rng = np.random.default_rng(seed)
    index = rng.integers(0, len(values), size=(RESAMPLES, len(values)))
    medians = np.median(values[index], axis=1)
    low, high = np.quantile(medians, [(1 - level) / 2, (1 + level) / 2])
    return float(np.exp(low)), float(np.exp(high))


@functools.cache
def _signed_rank_counts(n: int) -> NDArray[np.float64]:
    """Return P(W+ = w) for w = 0 .. n(n+1)/2 under symmetry about zero."""
    probabilities = np.zeros(n * (n + 1) // 2 + 1)
    probabilities[0] = 1.0
    for rank in range(1, n + 1):
        shifted = np.zeros_like(probabilities)
        shifted[rank:] = probabilities[:-rank]
        probabilities = (probabilities + shifted) / 2
    return probabilities


@functools.cache
def _critical(n: int, alpha: float) -> int:
    """Return the largest c with P(W+ <= c) <= alpha, or -1 where there is none."""
    return int(np.searchsorted(np.cumsum(_signed_rank_counts(n)), alpha, side="right")) - 1


def upper_bound(logs: Sequence[float], alpha: float) -> float:
    """Return the one-sided (1 - alpha) upper bound of the centre of the log ratios.

    Below 0 exactly where the signed-rank test says "faster" at level `alpha`. Infinite where
    there are too few pairs for that level.
    """
    values = np.asarray(logs, dtype=np.float64)
    n = len(values)
    critical = _critical(n, alpha) if n else -1
    if critical < 0:
        return math.inf
    rows, columns = np.triu_indices(n)
    walsh = np.sort((values[rows] + values[columns]) / 2)
    return float(walsh[len(walsh) - 1 - critical])


def faster_p(logs: Sequence[float]) -> float:
    """Return the one-sided level at which the centre of the log ratios is below 0.

    The smaller of two exact tests: signed-rank, which sees small effects best, and sign, which a
    few outlying launches in the candidate's arm move least. The gate's levels allow for both.
    """
    values = np.asarray(logs, dtype=np.float64)
    values = values[values != 0]
    n = len(values)
    if n == 0:
        return 1.0
    worse = int((values > 0).sum())
    sign = math.fsum(math.comb(n, k) for k in range(worse + 1)) / 2.0**n
    ranks = np.argsort(np.argsort(np.abs(values))) + 1
    positive = int(ranks[values > 0].sum())
    signed_rank = float(np.cumsum(_signed_rank_counts(n))[positive])
    return min(sign, signed_rank)


def lower_bound(logs: Sequence[float], alpha: float) -> float:
    """Return the one-sided (1 - alpha) lower bound of the centre of the log ratios."""
    return -upper_bound([-value for value in logs], alpha)


def spread(logs: Sequence[float]) -> float:
    """Return a standard deviation that outlying launches do not move (MAD about the median)."""
    values = np.asarray(logs, dtype=np.float64)
    if len(values) < 2:
        return 0.0
    return float(_MAD_TO_SD * np.median(np.abs(values - np.median(values))))


def launch_sd(values_us: Sequence[float]) -> float:
    """Return the launch-to-launch sd of log values, without drift and outlying launches.

    A line through the medians of pairwise slopes (Theil and Sen) takes the drift; Qn of the rest
    (Rousseeuw and Croux 1993) is the sd: sixteen launches give it within a fifth.

    Args:
        values_us: One value a launch, in the order measured.
    """
    logs = np.log(np.asarray(values_us, dtype=np.float64))
    if len(logs) < 4:
        return float(np.std(logs)) if len(logs) else 0.0
    first, second = np.triu_indices(len(logs), k=1)
    slope = np.median((logs[second] - logs[first]) / (second - first))
    return qn(logs - slope * np.arange(len(logs)))


def qn(values: NDArray[np.float64]) -> float:
    """Return the Qn scale: an order statistic of the distances between all pairs of values."""
    count = len(values)
    first, second = np.triu_indices(count, k=1)
    half = count // 2 + 1
    order = half * (half - 1) // 2
    distance = np.partition(np.abs(values[first] - values[second]), order - 1)[order - 1]
    # The consistency factor, and the finite-sample one of Croux and Rousseeuw (1992).
    small = count / (count + 1.4) if count % 2 else count / (count + 3.8)
    return float(2.2219 * small * distance)


def pairs_for(sd: float, wanted_gain: float, *, floor: int, cap: int) -> int:
    """Return the pairs that show a gain of `wanted_gain` in 9 of 10 studies at the gate's level.

    Args:
        sd: Launch-to-launch sd of the log value.
        wanted_gain: Fraction, 0.03 for 3 %.
        floor: Fewest pairs (outliers, not the sd, limit small counts).
        cap: Most pairs.
    """
    needed = ((_Z[0.999] + _Z[0.9]) * _pair_sd(sd) / -math.log1p(-wanted_gain)) ** 2
    return int(min(cap, max(floor, math.ceil(needed))))


def visible_gain(sd: float, pairs: int, min_gain: float) -> float:
    """Return the smallest gain that `pairs` show in 9 of 10 studies, as a fraction."""
    log_gain = (_Z[0.999] + _Z[0.9]) * _pair_sd(sd) / math.sqrt(max(pairs, 1))
    return max(min_gain, 1 - math.exp(-log_gain))


def _pair_sd(sd: float) -> float:
    # 1.02: efficiency of the signed-rank test under normal noise; 1.05: room for outliers.
    return math.sqrt(2) * sd * 1.02 * 1.05
