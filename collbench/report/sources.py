"""From a path to stories: run records, profile directories, studies, machine folders."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collbench.emit import render
from collbench.errors import CollbenchError
from collbench.job import Run
from collbench.profiles import store
from collbench.record import RunRecord, load, read_json, validate
from collbench.report import sweeps
from collbench.report.evidence import found_in
from collbench.report.story import Arm, Story

PLACE = "/etc/collbench"
"""Where the snippets to copy look for the active profile."""
SQLITE = b"SQLite format 3\x00"


def read(path: Path) -> list[Story]:
    """Return what lies at a path: one story, or one a profile for a machine's folder.

    Raises:
        CollbenchError: nothing there that a report can be made of.
    """
    if path.is_dir():
        return _directory(path)
    try:
        with path.open("rb") as file:
            head = file.read(len(SQLITE))
    except OSError as error:
        raise CollbenchError(
            f"{path}: {error.strerror}",
            fix="give a run record, a study file, a profile's directory or a machine's folder",
        ) from error
    if head == SQLITE:
        from collbench.report.studies import read_studies

        return read_studies(path)
    if path.name == store.ENV_FILE and (path.parent / store.JSON_FILE).is_file():
        return [_profile(path.parent)]
    plain = read_json(path)
    if plain.get("kind") == "run":
        return [_run(path)]
    if plain.get("kind") == "profile":
        return [_profile(path.parent)]
    if sweeps.is_document(plain):
        return [_document(path, part) for part in sweeps.parts(plain)]
    raise CollbenchError(
        f"{path}: kind: {plain.get('kind')!r:.60} is nothing a report is made of",
        fix="give a run record, a study file, a profile's directory or a machine's folder",
    )


def _directory(path: Path) -> list[Story]:
    if (path / store.JSON_FILE).is_file():
        return [_profile(path)]
    found = [_profile(directory) for directory in store.directories([path])]
    if found:
        return sorted(found, key=lambda story: (story.created, story.path))
    kept = list(sweeps.documents(path))
    if kept:
        newest, plain = kept[-1]
        return [_document(newest, part) for part in sweeps.parts(plain)]
    raise CollbenchError(
        f"{path}: holds no profile and no sweep",
        fix="give results/MACHINE/ID, results/MACHINE, or the file itself",
    )


def _run(path: Path) -> Story:
    record = load(path, RunRecord)
    return Story(
        title=_title(record.backend, record.nranks, record.workload, record.machine.host),
        path=str(path),
        kind="run",
        created=record.created,
        backend=record.backend,
        nranks=record.nranks,
        workload=record.workload,
        command=record.command,
        collbench=record.collbench,
        method=record.method,
        machine=record.machine,
        record=record,
        settings=record.settings,
        baseline=record.baseline,
        pinned=record.pinned,
        arms=arms_of(record.launches, record.settings),
        warnings=[*record.warnings, *(w for run in record.launches for w in run.warnings)],
    )


def _title(backend: str, nranks: int, workload: str | None, host: str) -> str:
    what = f"{workload}, " if workload else ""
    return f"{what}{backend} on {nranks} ranks" + (f", {host}" if host else "")


def arms_of(
    runs: Sequence[Run],
    settings: Mapping[str, str],
    name: str = "profile",
    reference: Mapping[str, str] | None = None,
) -> list[Arm]:
    """Return launches grouped by their settings: reference, default, `settings`, others.

    Args:
        runs: Launches, each with its settings.
        settings: Those that are called `name`.
        name: What they are called.
        reference: What ratios compare with; under hazards the safe profile. None: the default.
    """
    groups: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(sorted(run.settings.items())), []).append(run)
    wanted = tuple(sorted(settings.items()))
    base = tuple(sorted((reference or {}).items()))
    order = sorted(groups, key=lambda key: (key != base, bool(key), key != wanted, key))
    arms = []
    for key in order:
        label = "default" if not key else name if key == wanted else None
        label = label or ("safe profile" if key == base else None)
        text = " ".join(f"{n}={v}" for n, v in key)
        arms.append(Arm(name=label or text, settings=dict(key), runs=groups[key]))
    return arms


def _profile(directory: Path) -> Story:
    profile = store.read_profile(directory)
    runs: list[Run] = []
    warnings: list[str] = []
    command: list[str] = []
    interleaved: set[str | None] = set()
    for name in profile.records:
        path = directory / name
        if path.suffix != ".json" or not path.resolve().is_relative_to(directory.resolve()):
            continue
        try:
            record = load(path, RunRecord)
        except CollbenchError as error:
            warnings.append(f"{name}: {error.what}")
            continue
        command = command or record.command
        interleaved.add(record.interleaved)
        warnings += record.warnings
        runs += record.launches
    sweep = sweeps.of_profile(directory)
    found = found_in(
        {
            **profile.evidence,
            "verdict": profile.verdict,
            "not_searched": list(profile.not_searched),
            "backend": profile.backend,
            **(sweep[1] if sweep else {}),
            "settings": profile.settings,
            "profile": str(directory),
            "machine": None,
        },
        f"{directory}: evidence",
    )
    story = Story(
        title=f"Profile {profile.id}, {profile.machine.get('host') or 'this machine'}",
        path=str(directory),
        kind="profile",
        created=profile.created,
        backend=profile.backend,
        nranks=profile.scope.nranks,
        workload=profile.scope.workload or None,
        command=command,
        collbench=profile.collbench,
        method=profile.method,
        machine=_fingerprint(profile.machine, str(directory)),
        settings=profile.settings,
        baseline=profile.baseline,
        pinned=profile.pinned,
        document=found.model_dump(),
        arms=arms_of(
            [*runs, *found.proofs(str(directory))], profile.settings, reference=found.reference
        ),
        paired=len(interleaved) == 1 and None not in interleaved,
        guards=found.guards(),
        ablation=found.removals(),
        front=found.points(),
        files=_files(directory),
        warnings=warnings,
    )
    return sweeps.with_study(story, *sweep) if sweep else story


def _fingerprint(plain: Mapping[str, Any], where: str) -> Any:
    from collbench.machine import Fingerprint

    return validate(Fingerprint, dict(plain), where=f"{where}: machine")


def _document(path: Path, part: Mapping[str, Any]) -> Story:
    directory = sweeps.profile_of(path, part)
    if directory is not None:
        return _profile(directory)
    return sweeps.with_study(sweeps.from_document(path, part), path, part)


def _files(directory: Path) -> dict[str, str]:
    """Return what people copy: the env file as it is, and what a launcher takes."""
    files: dict[str, str] = {}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        files[store.ENV_FILE] = (directory / store.ENV_FILE).read_text(encoding="utf-8")
    for target in ("docker", "compose", "systemd", "k8s", "slurm", "shell"):
        # A value that one target cannot carry, or an env file that was edited: the others stay.
        with contextlib.suppress(CollbenchError):
            reference = store.load(directory)
            files[target] = render(target, reference, env_path=f"{PLACE}/current/{store.ENV_FILE}")
    return files
