"""The level of the default over time: what drifts between its launches, without outlying ones."""

from __future__ import annotations

from statistics import median

import numpy as np
from numpy.typing import NDArray

STEP = 0.001
"""Drift from one launch to the next that the local default can follow, sd of the log."""


def smoothed(
    at: NDArray[np.int64], logs: NDArray[np.float64], count: int, sd: float
) -> NDArray[np.float64]:
    """Return the levels at 0 .. count - 1 from noisy looks at the indices `at`.

    The best linear estimate of levels that move by `STEP` a launch and are seen with noise `sd`
    (Kalman filter and Rauch-Tung-Striebel smoother of a random walk): on a calm machine it runs
    through the defaults, on a noisy one it averages many.

    Args:
        at: Indices of the looks, ascending; negative ones are before the first launch.
        logs: ``[look][series]``.
        count: Launches.
        sd: Noise of one look.
    """
    first = int(at[0])
    length = max(count, int(at[-1]) + 1) - first
    looks = {int(moment) - first: row for moment, row in zip(at, logs, strict=True)}
    means = np.empty((length, logs.shape[1]))
    variances = np.empty(length)
    mean, variance = logs[0], sd**2
    for i in range(length):
        if i:
            variance += STEP**2
            look = looks.get(i)
            if look is not None:
                gain = variance / (variance + sd**2)
                mean = mean + gain * (look - mean)
                variance *= 1 - gain
        means[i], variances[i] = mean, variance
    for i in range(length - 2, -1, -1):
        means[i] += variances[i] / (variances[i] + STEP**2) * (means[i + 1] - means[i])
    level: NDArray[np.float64] = (
        means[-first : -first + count]
        if first <= 0
        else (np.vstack([np.repeat(means[:1], first, axis=0), means])[:count])
    )
    return level


def inliers(logs: NDArray[np.float64], far: float) -> NDArray[np.bool_]:
    """Return which defaults to keep: all but those far above the median of the five around."""
    values = logs.tolist()
    around = [values[max(0, i - 2) : i + 3] for i in range(len(values))]
    keep = [log <= median(near) + far for log, near in zip(values, around, strict=True)]
    return np.array(keep, dtype=bool)
