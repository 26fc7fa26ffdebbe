"""A check from the profile's record to the verdict, as every rank of the launcher runs it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from collbench.check.arguments import Arguments, parse
from collbench.check.words import summary
from collbench.compare.keys import differences
from collbench.confirm.arms import Setup
from collbench.confirm.check import CheckResult, Recorded, check
from collbench.confirm.objective import objective_of
from collbench.errors import CollbenchError, Exit
from collbench.files import write_atomic
from collbench.job import Run, Settings
from collbench.lab import Purpose
from collbench.machine import fingerprint
from collbench.pool import Pool, open_pool
from collbench.preflight import MachineLock, check_gpus, check_shm, choose_backend, machine_gpus
from collbench.profiles import Profile
from collbench.profiles.store import load
from collbench.ranks import detect
from collbench.record import RunRecord, allowed_env, now_utc
from collbench.record import load as load_record
from collbench.terminal.progress import SweepProgress

EXIT = {
    "as_recorded": Exit.OK,
    "regressed": Exit.FINDINGS,
    "no_longer_helps": Exit.FINDINGS,
    "not_comparable": Exit.NOT_COMPARABLE,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A profile with the record of its confirming launches."""

    directory: Path
    profile: Profile
    record: RunRecord


def subject_of(reference: str) -> Subject:
    """Return the profile to check and its record.

    Raises:
        CollbenchError: there is no such profile, or it came without its record.
    """
    found = load(reference)
    if found.profile is None:
        raise CollbenchError(
            f"{reference}: a bare env file has no record to check against",
            fix="give the directory or the id of a profile (collbench profile list)",
        )
    directory = found.env_path.parent
    path = directory / "records" / "profile.json"
    return Subject(directory=directory, profile=found.profile, record=load_record(path, RunRecord))


def main(arguments: Sequence[str]) -> int:
    """Run one rank of a check and return the exit code.

    Raises:
        CollbenchError: what was asked cannot be done.
    """
    try:
        given = parse(arguments)
    except click.ClickException as error:
        if int(os.environ.get("RANK", "0")) == 0:
            error.show()
        return Exit.USAGE
    if given is None:
        return Exit.OK
    where = detect()
    subject = subject_of(given.profile)
    backend = subject.profile.backend
    gpus = machine_gpus(backend)
    choose_backend(backend, where.world_size, gpus, local_ranks=where.local_world_size)
    if where.world_size != subject.profile.scope.nranks:
        raise CollbenchError(
            f"{given.profile} was confirmed with {subject.profile.scope.nranks} ranks, "
            f"this launch has {where.world_size}",
            fix=f"--nproc-per-node {subject.profile.scope.nranks}",
        )
    warnings = []
    if where.local_rank == 0:
        warnings = [*check_gpus(gpus, force=given.force), *check_shm()]
    pool = open_pool(where, backend)
    lock = MachineLock(gpus) if where.local_rank == 0 else None
    try:
        if where.rank != 0:
            pool.serve()
            return Exit.OK
        try:
            return _lead(given, subject, pool, warnings)
        finally:
            pool.close()
    finally:
        if lock is not None:
            lock.release()


class _RecordLab:
    """Launches the job of the record again, with other settings."""

    def __init__(self, pool: Pool, record: RunRecord) -> None:
        self._pool = pool
        self._job = replace(record.job, baseline=dict(record.baseline), settings={})

    def launch(self, settings: Settings, purpose: Purpose, *, env_file: Path | None = None) -> Run:
        """Start one launch; see `collbench.lab.Lab`."""
        job = replace(self._job, job_id=f"check-{purpose}", settings=dict(settings))
        return self._pool.launch(job, env_file=env_file)

    def launch_communicators(
        self, shared: Settings, each: Sequence[Settings], purpose: Purpose
    ) -> list[Run]:
        """Start one launch for each: a check measures in fresh processes only."""
        return [self.launch({**shared, **settings}, purpose) for settings in each]


def _lead(given: Arguments, subject: Subject, pool: Pool, warnings: list[str]) -> int:
    """Do rank 0's part."""
    profile, record = subject.profile, subject.record
    progress = SweepProgress(sys.stderr, quiet=given.quiet)
    for warning in warnings:
        progress.say(f"warning: {warning}")
    hello = pool.hello()
    library = hello.ranks[0]
    now = record.model_copy(
        update={
            "machine": fingerprint(library=library.library, library_path=library.library_path),
            "launches": [hello],
        }
    )
    changed = [f"{d.key}: {d.a} -> {d.b}" for d in differences(record, now)[0]]
    changed += _environment(profile)
    setup = Setup(
        lab=_RecordLab(pool, record),
        backend=pool.backend,
        objective=objective_of(profile.scope.objective),
        told=lambda settings, run, ratio: progress.trial(
            settings, run.outcome, ratio, reason=run.reason
        ),
    )
    progress.stage("check", 2 * given.pairs)
    with progress:
        result = check(
            setup,
            _recorded(profile),
            beside=pool.backend == "mpi",
            changed=changed,
            pairs=given.pairs,
        )
    whole = document(result, subject, changed, warnings)
    stamp = whole["created"].replace(":", "").replace("-", "")
    text = json.dumps(whole, indent=2, allow_nan=False) + "\n"
    write_atomic(subject.directory / "checks" / f"{stamp}.json", text)
    if given.json_file is not None:
        write_atomic(given.json_file, text)
    print(text if given.as_json else summary(whole), end="", flush=True)
    return int(whole["exit_code"])


def _environment(profile: Profile) -> list[str]:
    """Return in words which pinned variables are not as they were in the sweep."""
    now = {n: v for n, v in allowed_env(os.environ).items() if n in profile.pinned}
    return [
        f"{name}: {value} -> {now.get(name, 'unset')}"
        for name, value in sorted(profile.pinned.items())
        if now.get(name) != value
    ]


def _recorded(profile: Profile) -> Recorded:
    """Return what the profile's record says.

    Raises:
        CollbenchError: the evidence lacks a figure.
    """
    evidence = profile.evidence
    try:
        return Recorded(
            settings=dict(profile.settings),
            ratio=float(evidence["ratio"]),
            default_us=float(evidence["default_us"]),
            winner_us=float(evidence["winner_us"]),
            sd=float(evidence["noise_pct"]) / 100,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CollbenchError(
            f"profile {profile.id}: evidence: {error} is missing or no number",
            fix="check a profile that a sweep has published",
        ) from error


def document(
    result: CheckResult, subject: Subject, changed: Sequence[str], warnings: Sequence[str]
) -> dict[str, Any]:
    """Return the document of a check as docs/schema/check.json has it."""
    now, then = result.now, result.recorded
    finite = now.pairs > 0
    return {
        "schema": 1,
        "command": "check",
        "exit_code": int(EXIT[result.verdict]),
        "verdict": result.verdict,
        "ratio": now.ratio if finite else None,
        "interval": list(now.interval) if finite else None,
        "changed": list(changed),
        "reasons": list(result.reasons),
        "profile": subject.profile.id,
        "created": now_utc(),
        "pairs": now.pairs,
        "times_us": {
            "default": {"then": then.default_us, "now": now.default_us if finite else None},
            "profile": {"then": then.winner_us, "now": now.winner_us if finite else None},
        },
        "recorded_ratio": then.ratio,
        "warnings": list(warnings),
    }
