"""Replay a recorded landscape through the real search, ablation and gate code.

    python -m benchmarks.search_replay FILE.jsonl... --budget 25 --seeds 200 --json

Nothing is timed: launches are drawn from the record (benchmarks/replay_lab.py). `budget` counts
search launches, interleaved defaults included.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import optuna

from benchmarks.landscape import Landscape, read, space_of
from benchmarks.replay_lab import ReplayLab
from collbench.errors import CollbenchError
from collbench.search.budget import parse_budget
from collbench.search.options import Options
from collbench.search.protocol import run
from collbench.search.strategies import STRATEGIES
from collbench.space.axes import Space, key


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is replayed; the same for every seed."""

    paths: tuple[str, ...]
    budget: int
    strategy: str
    noise_pct: float | None
    null: bool
    plant_pct: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One study."""

    seed: int
    search_regret_pct: float
    final_regret_pct: float
    launches: int
    adopted: bool
    found: bool | None
    claim_error_pp: float | None
    search_winner: dict[str, str]
    settings: dict[str, str]


@functools.cache
def _read(paths: tuple[str, ...]) -> tuple[Landscape, Space]:
    landscape = read([Path(path) for path in paths])
    return landscape, space_of(landscape)


def one(setting: Setting, seed: int) -> Outcome:
    """Run one study on a lab of its own."""
    landscape, space = _read(setting.paths)
    sd = landscape.sd if setting.noise_pct is None else setting.noise_pct / 100
    planted = None
    if setting.plant_pct is not None:
        landscape, planted = landscape.planted(setting.plant_pct, random.Random(seed))
    elif setting.null:
        landscape = landscape.null()
    result = run(
        ReplayLab(landscape, sd, seed),
        space,
        Options(
            backend="nccl",
            beside=False,
            strategy=setting.strategy,
            budget=parse_budget(str(setting.budget)),
            seed=seed,
        ),
        storage=optuna.storages.InMemoryStorage(),
    )
    adopted = result.verdict == "profile"
    error = None
    if adopted and result.ratio is not None:
        true = landscape.truths[key(result.settings)].step_us / landscape.default.step_us
        error = abs(result.ratio - true) * 100
    return Outcome(
        seed=seed,
        search_regret_pct=landscape.regret_pct(key(result.search_winner), guarded=True),
        final_regret_pct=landscape.regret_pct(key(result.settings)),
        launches=result.trials,
        adopted=adopted,
        found=None if planted is None else planted in key(result.settings),
        claim_error_pp=error,
        search_winner=result.search_winner,
        settings=result.settings,
    )


def summary(setting: Setting, outcomes: list[Outcome], seconds: float) -> dict[str, Any]:
    """Return the document; intervals are 95 %, bootstrap over studies."""
    search = [o.search_regret_pct for o in outcomes]
    final = [o.final_regret_pct for o in outcomes]
    errors = [o.claim_error_pp for o in outcomes if o.claim_error_pp is not None]
    found = [o.found for o in outcomes if o.found is not None]
    landscape, _ = _read(setting.paths)
    return {
        "schema": 1,
        "command": "search_replay",
        "exit_code": 0,
        "settings_in_space": len(landscape.names),
        "budget": setting.budget,
        "seeds": len(outcomes),
        "strategy": setting.strategy,
        "noise_pct": landscape.sd * 100 if setting.noise_pct is None else setting.noise_pct,
        "null": setting.null,
        "plant_pct": setting.plant_pct,
        "search_regret_median_pct": median(search),
        "search_regret_median_interval": _interval(search, 0.5),
        "search_regret_mean_pct": sum(search) / len(search),
        "search_regret_mean_interval": _interval(search, None),
        "search_regret_p90_pct": float(np.quantile(search, 0.9)),
        "search_regret_p90_interval": _interval(search, 0.9),
        "final_regret_median_pct": median(final),
        "final_regret_p90_pct": float(np.quantile(final, 0.9)),
        "launches_median": median(o.launches for o in outcomes),
        "adopt_pct": 100 * sum(o.adopted for o in outcomes) / len(outcomes),
        "found_pct": 100 * sum(found) / len(found) if found else None,
        "claim_error_p95_pp": float(np.quantile(errors, 0.95)) if errors else None,
        "seconds": seconds,
    }


def _interval(values: list[float], quantile: float | None) -> list[float]:
    rng = np.random.default_rng(0)
    drawn = np.asarray(values)[rng.integers(0, len(values), (2000, len(values)))]
    each = drawn.mean(axis=1) if quantile is None else np.quantile(drawn, quantile, axis=1)
    return [float(v) for v in np.quantile(each, [0.025, 0.975])]


def replay(setting: Setting, seeds: int, jobs: int) -> dict[str, Any]:
    """Run `seeds` studies and return the document."""
    began = time.monotonic()
    _read(setting.paths)
    work = functools.partial(one, setting)
    if jobs == 1:
        outcomes = [work(seed) for seed in range(seeds)]
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
            outcomes = list(pool.map(work, range(seeds), chunksize=8))
    return summary(setting, outcomes, time.monotonic() - began)


def _refuse(given: argparse.Namespace) -> None:
    """Refuse numbers that no replay can be made of."""
    for name, least, most in (
        ("seeds", 1, math.inf),
        ("jobs", 1, math.inf),
        ("noise", 0, 100),
        ("plant", 0, 90),
    ):
        value = getattr(given, name)
        if value is not None and not least <= value <= most:
            raise CollbenchError(
                f"--{name} {value:g}: must be {least} "
                + ("or more" if most > 100 else f"to {most}")
            )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_replay", description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("--budget", type=int, required=True, help="search launches")
    parser.add_argument("--seeds", type=int, default=200, help="studies")
    parser.add_argument("--strategy", default="auto", help=", ".join(STRATEGIES))
    parser.add_argument("--noise", type=float, metavar="PCT", help="launch sd; default: recorded")
    parser.add_argument("--null", action="store_true", help="every truth is the default's")
    parser.add_argument("--plant", type=float, metavar="PCT", help="plant one value in a null")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    given = parser.parse_args(argv)
    setting = Setting(
        paths=tuple(given.files),
        budget=given.budget,
        strategy=given.strategy,
        noise_pct=given.noise,
        null=given.null or given.plant is not None,
        plant_pct=given.plant,
    )
    try:
        _refuse(given)
        found = replay(setting, given.seeds, given.jobs)
    except CollbenchError as error:
        print(f"search_replay: {error}", file=sys.stderr)
        return error.code
    if given.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            shown = f"{value:.3f}" if isinstance(value, float) and math.isfinite(value) else value
            print(f"{name:32} {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
