"""Studies as the search left them: every launch of every phase, and Optuna's importance."""

from __future__ import annotations

import math
import sqlite3
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collbench.errors import CollbenchError
from collbench.job import Run
from collbench.record import validate_run
from collbench.report.sources import arms_of
from collbench.report.story import Arm, Story, Trial

LAUNCH = "launch/"
"""Prefix of the study's attributes that hold launches (`collbench.search.ledger`)."""
MEASURED = "value_us"
"""Attribute of the trials that were launched and ended well."""
FEWEST = 16
"""Fewest measured trials that an importance is computed from."""
BESIDE = ("mpi", "gloo")
"""Backends whose candidates stand beside a default of their own."""


def read_studies(path: Path) -> list[Story]:
    """Return every study in an Optuna SQLite file; the file is opened read-only.

    Raises:
        CollbenchError: not an Optuna storage, or a study that collbench did not make.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    _require_optuna(path)
    url = f"sqlite:///file:{path.resolve()}?mode=ro&uri=true"
    try:
        storage = optuna.storages.RDBStorage(url)
        summaries = optuna.get_all_study_summaries(storage=storage)
        studies = [optuna.load_study(study_name=s.study_name, storage=storage) for s in summaries]
        # From the storage: the study's own property copies every launch once more.
        attributes = [
            storage.get_study_user_attrs(storage.get_study_id_from_name(s.study_name))
            for s in summaries
        ]
    except Exception as error:  # Optuna and SQLAlchemy raise types of their own
        raise CollbenchError(
            f"{path}: the study cannot be read: {str(error).splitlines()[0][:160]}",
            fix="optuna storage upgrade, or use the Optuna version that wrote it",
        ) from error
    stories = [_study(path, *pair) for pair in zip(studies, attributes, strict=True)]
    if not stories:
        raise CollbenchError(f"{path}: holds no study", fix="give the file that sweep wrote")
    return stories


def _require_optuna(path: Path) -> None:
    """Refuse a file that is no Optuna storage: opening it with Optuna would add tables to it."""
    try:
        with sqlite3.connect(f"file:{path.resolve()}?mode=ro", uri=True) as connection:
            rows = connection.execute(
                "SELECT name FROM sqlite_master WHERE type='table'"
            ).fetchall()
    except sqlite3.Error as error:
        raise CollbenchError(f"{path}: not a readable SQLite file: {error}") from error
    if not {"studies", "trials", "study_user_attributes"} <= {name for (name,) in rows}:
        raise CollbenchError(
            f"{path}: an SQLite file, but not a study", fix="give the file that sweep wrote"
        )


def _study(path: Path, study: Any, attributes: dict[str, Any]) -> Story:
    names = sorted(name for name in attributes if name.startswith(LAUNCH))
    launches = [_launch(attributes[name], f"{path}: {name}") for name in names]
    spec = attributes.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    backend = str(spec.get("backend") or "")
    objective = str(spec.get("objective") or "decode")
    confirming = [run for phase, run, _ in launches if phase == "confirm"]
    winner = next((run.settings for run in reversed(confirming) if run.settings), {})
    runs = [run for phase, run, _ in launches if phase in ("confirm", "proof")]
    importance, method = _importance(study)
    return Story(
        title=f"Study {study.study_name}",
        path=str(path),
        kind="study",
        created=_created(study),
        backend=backend,
        nranks=int(spec.get("nranks") or max((len(r.ranks) for _, r, _ in launches), default=0)),
        workload=str(spec["workload"]) if isinstance(spec.get("workload"), str) else None,
        settings=winner,
        baseline=_texts(spec.get("baseline")),
        pinned=_texts(spec.get("pinned")),
        arms=_arms(runs, launches, winner),
        trials=trials_of(launches, backend, objective),
        importance=importance,
        importance_method=method,
    )


def _launch(plain: Any, where: str) -> tuple[str, Run, dict[str, str]]:
    """Return phase, run and what was asked of one stored launch."""
    if not isinstance(plain, dict) or not isinstance(plain.get("run"), dict):
        raise CollbenchError(f"{where}: not a launch that sweep stored")
    return (
        str(plain.get("phase") or ""),
        validate_run(plain["run"], where=where),
        _texts(plain.get("asked")),
    )


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return {}
    return {str(name): str(item) for name, item in value.items()}


def _created(study: Any) -> str:
    starts = [t.datetime_start for t in study.get_trials(deepcopy=False) if t.datetime_start]
    return min(starts).isoformat(timespec="seconds") if starts else ""


def _arms(
    runs: list[Run], launches: list[tuple[str, Run, dict[str, str]]], winner: Mapping[str, str]
) -> list[Arm]:
    """Return default and candidate of the confirmation; before one, the defaults alone."""
    if runs:
        return arms_of(runs, winner, "candidate")
    defaults = [run for _, run, asked in launches if not asked and run.outcome == "ok"]
    return [Arm(name="default", settings={}, runs=defaults)] if defaults else []


def trials_of(
    launches: list[tuple[str, Run, dict[str, str]]], backend: str, objective: str
) -> list[Trial]:
    """Return every launch as a trial, scored against the default near it as the search does."""
    from collbench.confirm.objective import objective_of, sample
    from collbench.search.history import History, Seen
    from collbench.space.axes import key

    history = History(reference=key({}), sd=0.0, beside=backend in BESIDE)
    for _, run, asked in launches:
        found = None
        if run.outcome == "ok":
            try:
                found = sample(run, backend, objective_of(objective))
            except CollbenchError:
                found = None
        history.add(Seen(key=key(asked), outcome=run.outcome, sample=found, reason=run.reason))
    near = history.local_default()
    trials = []
    for number, (launch, seen) in enumerate(zip(launches, history.seen, strict=True)):
        default = float(math.exp(near[number])) if not math.isnan(near[number]) else None
        phase, run, asked = launch
        value = seen.sample.value_us if seen.sample else None
        trials.append(
            Trial(
                number=number,
                stage=phase,
                settings=asked,
                outcome=run.outcome,
                reason=run.reason,
                value_us=value,
                default_us=default,
            )
        )
    return trials


def _importance(study: Any) -> tuple[dict[str, float], str]:
    """Return Optuna's importance of the study's parameters; empty where it cannot tell."""
    import optuna

    states = (optuna.trial.TrialState.COMPLETE,)
    # Proposals that were never launched are told with a penalty; they say nothing of the settings.
    done = [t for t in study.get_trials(states=states) if MEASURED in t.user_attrs]
    varied = {name for t in done for name in t.params}
    if len(done) < FEWEST or len(varied) < 2 or len(study.directions) != 1:
        return {}, ""
    measured = optuna.create_study(direction=study.direction)
    measured.add_trials(done)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = optuna.importance.get_param_importances(measured)
    except (RuntimeError, ValueError):
        return {}, ""
    total = sum(found.values())
    if not total or not math.isfinite(total) or max(found.values()) == min(found.values()):
        return {}, ""
    shares = {name: value / total for name, value in found.items()}
    return shares, f"By Optuna's get_param_importances over {len(done)} measured trials."
