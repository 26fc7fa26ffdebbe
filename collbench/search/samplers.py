"""Optuna samplers of the strategies."""

from __future__ import annotations

import warnings

import optuna


def sampler(strategy: str, seed: int) -> optuna.samplers.BaseSampler:
    """Return the sampler that fills what a strategy leaves open.

    Multivariate TPE with groups: conditional axes stay joint inside their branch.
    """
    if strategy == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=10, multivariate=True, group=True
        )
