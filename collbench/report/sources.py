"""From a path to stories: run records, profile directories, studies, machine folders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collbench.errors import CollbenchError
from collbench.job import Run
from collbench.profiles import store
from collbench.record import RunRecord, load, read_json, validate
from collbench.report.story import Ablated, Arm, FrontPoint, Story

SQLITE = b"SQLite format 3\x00"
DOCUMENT = "sweep.json"
"""The sweep's document, where a sweep leaves it beside its study or profile."""


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
    if path.name in (store.ENV_FILE, store.JSON_FILE):
        return [_profile(path.parent)]
    plain = read_json(path)
    if plain.get("kind") == "run":
        return [_run(path)]
    if plain.get("kind") == "profile":
        return [_profile(path.parent)]
    if plain.get("command") == "sweep" and "verdict" in plain:
        return [_document(path, plain)]
    raise CollbenchError(
        f"{path}: kind: {plain.get('kind')!r:.60} is nothing a report is made of",
        fix="give a run record, a study file, a profile's directory or a machine's folder",
    )


def _directory(path: Path) -> list[Story]:
    if (path / store.JSON_FILE).is_file():
        return [_profile(path)]
    found = [_profile(directory) for directory in _below(path)]
    if found:
        return sorted(found, key=lambda story: (story.created, story.path))
    singles = [p for pattern in ("*.db", "*.sqlite", "*.json") for p in sorted(path.glob(pattern))]
    stories: list[Story] = []
    for single in singles:
        try:
            stories += read(single)
        except CollbenchError:
            continue
    if not stories:
        raise CollbenchError(
            f"{path}: holds no profile, study or run record",
            fix="give results/MACHINE/ID, results/MACHINE, or the file itself",
        )
    return [merged(stories)] if any(s.kind == "study" for s in stories) else stories


def _below(path: Path) -> list[Path]:
    links = {path / "current", path / "previous"}
    return [
        found.parent
        for pattern in ("*", "*/*")
        for found in sorted(path.glob(f"{pattern}/{store.JSON_FILE}"))
        if found.parent not in links and not found.parent.name.startswith(".")
    ]


def merged(stories: Sequence[Story]) -> Story:
    """Return a study together with the document and records that lie beside it."""
    import dataclasses

    study = next(story for story in stories if story.kind == "study")
    document = next((s.document for s in stories if s.kind == "sweep"), study.document)
    machine = next((s.machine for s in stories if s.machine), None)
    return dataclasses.replace(study, document=document, machine=study.machine or machine)


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


def arms_of(runs: Sequence[Run], settings: Mapping[str, str], name: str = "profile") -> list[Arm]:
    """Return launches grouped by their settings, the default first, then `settings` as `name`."""
    groups: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(sorted(run.settings.items())), []).append(run)
    wanted = tuple(sorted(settings.items()))
    order = sorted(groups, key=lambda key: (bool(key), key != wanted, key))
    arms = []
    for key in order:
        label = "default" if not key else name if key == wanted else None
        text = " ".join(f"{n}={v}" for n, v in key)
        arms.append(Arm(name=label or text, settings=dict(key), runs=groups[key]))
    return arms


def _profile(directory: Path) -> Story:
    profile = store.read_profile(directory)
    evidence = profile.evidence
    runs: list[Run] = []
    warnings: list[str] = []
    command: list[str] = []
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
        warnings += record.warnings
        runs += record.launches
    document = {
        "verdict": profile.verdict,
        "profile": str(directory),
        "settings": profile.settings,
        "not_searched": list(profile.not_searched),
        "backend": profile.backend,
        **{key: evidence.get(key) for key in EVIDENCE},
        **_beside(directory),
    }
    return Story(
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
        document=document,
        arms=arms_of(runs, profile.settings),
        ablation=ablation_of(evidence.get("ablation")),
        front=front_of(evidence.get("front")),
        files=_files(directory),
        warnings=warnings,
    )


EVIDENCE = (
    "default_us",
    "winner_us",
    "default_exposed_us",
    "winner_exposed_us",
    "ratio",
    "interval",
    "search_value_us",
    "noise_pct",
)


def _fingerprint(plain: Mapping[str, Any], where: str) -> Any:
    from collbench.machine import Fingerprint

    return validate(Fingerprint, dict(plain), where=f"{where}: machine")


def _beside(directory: Path) -> dict[str, Any]:
    """Return the sweep's own document where it was left beside the profile."""
    try:
        plain = json.loads((directory / DOCUMENT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return plain if isinstance(plain, dict) and plain.get("command") == "sweep" else {}


def _document(path: Path, plain: dict[str, Any]) -> Story:
    directory = plain.get("profile")
    if isinstance(directory, str) and (Path(directory) / store.JSON_FILE).is_file():
        return _profile(Path(directory))
    return Story(
        title=f"Sweep, {plain.get('backend') or 'unknown backend'}",
        path=str(path),
        kind="sweep",
        backend=str(plain.get("backend") or ""),
        settings=plain.get("settings") or {},
        baseline=plain.get("baseline") or {},
        document=plain,
        warnings=[str(text) for text in plain.get("warnings") or ()],
    )


def ablation_of(plain: Any) -> list[Ablated]:
    """Return the ablation as a profile's evidence or a sweep's document holds it."""
    found = []
    for item in plain if isinstance(plain, list) else ():
        if not isinstance(item, dict):
            continue
        between = item.get("interval")
        pair = (
            (float(between[0]), float(between[1]))
            if isinstance(between, list | tuple) and len(between) == 2
            else None
        )
        ratio = item.get("ratio")
        found.append(
            Ablated(
                setting=_removed(item),
                ratio=float(ratio) if isinstance(ratio, int | float) else None,
                interval=pair,
                kept=bool(item.get("kept")),
                note=str(item.get("note") or item.get("reason") or ""),
            )
        )
    return found


def _removed(item: Mapping[str, Any]) -> str:
    dropped = item.get("dropped")
    if isinstance(dropped, dict):
        return " ".join(f"{name}={value}" for name, value in dropped.items()) or "?"
    return str(dropped or item.get("setting") or "?")


def front_of(plain: Any) -> list[FrontPoint]:
    """Return the front of decode and prefill as a profile's evidence or a document holds it."""
    found = []
    for item in plain if isinstance(plain, list) else ():
        if not isinstance(item, dict) or not isinstance(item.get("settings"), dict):
            continue
        decode, prefill = item.get("decode_ratio"), item.get("prefill_ratio")
        if isinstance(decode, int | float) and isinstance(prefill, int | float):
            found.append(
                FrontPoint(
                    settings={str(k): str(v) for k, v in item["settings"].items()},
                    decode_ratio=float(decode),
                    prefill_ratio=float(prefill),
                    on_front=bool(item.get("on_front", True)),
                    knee=bool(item.get("knee")),
                )
            )
    return found


def _files(directory: Path) -> dict[str, str]:
    """Return the files of a profile that people copy, as they are."""
    try:
        return {store.ENV_FILE: (directory / store.ENV_FILE).read_text(encoding="utf-8")}
    except (OSError, UnicodeDecodeError):
        return {}
