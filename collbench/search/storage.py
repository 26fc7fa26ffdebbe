"""The study in its storage: opened, resumed, and refused where its spec changed."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from collbench.errors import CollbenchError
from collbench.search.backings import is_shared, open_shared

optuna.logging.set_verbosity(optuna.logging.ERROR)
SPEC = "spec"
_PASSWORD = re.compile(r"(?P<head>[a-zA-Z0-9+]+://[^:/@\s]*):[^@\s]*@")


def redact(text: str) -> str:
    """Return a storage URL, or a text that holds one, without its password.

    >>> redact("postgresql://me:secret@db/studies")
    'postgresql://me:***@db/studies'
    """
    return _PASSWORD.sub(r"\g<head>:***@", text)


def open_study(
    storage: str | optuna.storages.BaseStorage,
    name: str,
    spec: Mapping[str, Any],
    *,
    resume: bool = False,
    join: bool = False,
    sampler: optuna.samplers.BaseSampler | None = None,
) -> optuna.Study:
    """Create a study, or resume one whose spec is the same.

    Args:
        storage: URL (``sqlite:///study.db``) or an open storage.
        name: Name of the study in it.
        spec: What defines the study, as plain JSON values; compared field by field on resume.
        resume: Go on with an existing study; without it an existing study is refused.
        join: Several nodes search it: whoever comes first creates it.
        sampler: Optuna sampler for proposals that no strategy makes.

    Raises:
        CollbenchError: the storage cannot be opened, the study exists (or, with `resume`, does
            not), or its spec differs; the field is named.
    """
    shown = redact(storage) if isinstance(storage, str) else "this storage"
    plain = json.loads(json.dumps(spec, sort_keys=True))
    try:
        opened = open_storage(storage)
        if not join:
            known = {s.study_name for s in optuna.get_all_study_summaries(storage=opened)}
            _refuse_name(name, known, resume=resume, shown=shown)
        study = optuna.create_study(
            storage=opened, study_name=name, sampler=sampler, load_if_exists=True
        )
    except CollbenchError:
        raise
    except Exception as error:  # every storage has exceptions of its own
        raise CollbenchError(
            f"{shown}: the study cannot be opened: {redact(str(error)).splitlines()[0][:200]}",
            fix="check the path, the rights and the URL given with --storage",
        ) from error
    stored = study.user_attrs.get(SPEC)
    if stored is None:
        study.set_user_attr(SPEC, plain)
    else:
        refuse_difference(stored, plain, where=f"{shown}: study {name!r}")
    return study


def open_storage(storage: str | optuna.storages.BaseStorage) -> optuna.storages.BaseStorage:
    """Open a storage; a SQLite file gets a write-ahead log, which a kill cannot cut.

    With it a stored launch costs no wait for the disk (some ten commits a trial would cost a
    tenth of the sweep), and only a power cut can lose the last of them.
    """
    if isinstance(storage, str) and is_shared(storage):
        return optuna.storages.get_storage(open_shared(storage))
    if not isinstance(storage, str) or not storage.startswith("sqlite:///"):
        return optuna.storages.get_storage(storage)
    path = storage.removeprefix("sqlite:///")
    if path in ("", ":memory:") or "?" in path:
        return optuna.storages.get_storage(storage)

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=60.0, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    return optuna.storages.RDBStorage(storage, engine_kwargs={"creator": connect})


def has_study(storage: str | optuna.storages.BaseStorage, name: str) -> bool:
    """Return whether a storage holds a study of that name."""
    opened = open_storage(storage)
    return name in {s.study_name for s in optuna.get_all_study_summaries(storage=opened)}


def _refuse_name(name: str, known: set[str], *, resume: bool, shown: str) -> None:
    if name in known and not resume:
        raise CollbenchError(
            f"{shown}: a study {name!r} is there already",
            fix="add --resume to go on with it, or give another --storage or --out",
        )
    if name not in known and resume and known:
        raise CollbenchError(
            f"{shown}: no study {name!r} to resume; it holds {', '.join(sorted(known))}",
            fix="resume with the sweep and the options that it was started with",
        )


def refuse_difference(stored: Mapping[str, Any], now: Mapping[str, Any], *, where: str) -> None:
    """Raise where a resumed study was started with another spec.

    Raises:
        CollbenchError: naming the first field that differs, both values and the choices.
    """
    for field in sorted({*stored, *now}):
        before, after = stored.get(field), now.get(field)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            name = min(n for n in {*before, *after} if before.get(n) != after.get(n))
            field, before, after = f"{field}.{name}", before.get(name), after.get(name)
        raise CollbenchError(
            f"{where} was started with another {field}: {_short(before)}, now {_short(after)}",
            fix=f"give {field} as it was, or start anew: without --resume, and with another "
            "--storage where one was given",
        )


def _short(value: Any) -> str:
    if value is None:
        return "not set"
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 160 else text[:157] + "..."


def abandoned(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials that were running when the study was killed."""
    return list(study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))
