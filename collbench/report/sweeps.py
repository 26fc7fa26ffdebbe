"""What a sweep left: its document, its study beside it, and the profile that came out."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from collbench.errors import CollbenchError
from collbench.profiles import store
from collbench.record import read_json
from collbench.report.evidence import found_in
from collbench.report.story import Story

STUDIES = "studies"
"""Folder of a machine that holds studies and the documents of their sweeps."""


def is_document(plain: Mapping[str, Any]) -> bool:
    """Return whether a JSON object is the document of a sweep."""
    return plain.get("command") == "sweep" and "verdict" in plain


def documents(machine_folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the documents of a machine's sweeps, oldest first; unreadable ones are left out."""
    for path in sorted((machine_folder / STUDIES).glob("*.json")):
        with contextlib.suppress(CollbenchError):
            plain = read_json(path)
            if is_document(plain):
                yield path, plain


def parts(plain: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the document of the safe study and that of the one with hazards, if there is one."""
    hazard = plain.get("hazard")
    return [plain, *([hazard] if isinstance(hazard, dict) and is_document(hazard) else [])]


def of_profile(directory: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the newest sweep whose verdict was this profile, where its document is kept."""
    found = None
    for path, plain in documents(directory.resolve().parent):
        for part in parts(plain):
            if Path(str(part.get("profile") or "")).name == directory.resolve().name:
                found = path, part
    return found


def profile_of(path: Path, part: Mapping[str, Any]) -> Path | None:
    """Return the profile's directory of a document: as it says, or beside the studies."""
    named = part.get("profile")
    if not isinstance(named, str):
        return None
    for directory in (path.resolve().parent.parent / Path(named).name, Path(named)):
        if (directory / store.JSON_FILE).is_file():
            return directory
    return None


def with_study(story: Story, path: Path, part: Mapping[str, Any]) -> Story:
    """Return a story with the launches of the study beside a document, where it is kept."""
    database = path.with_suffix(".db")
    if not database.is_file():
        return story
    from collbench.report.studies import read_studies

    try:
        studies = read_studies(database)
    except CollbenchError as error:
        return dataclasses.replace(story, warnings=[*story.warnings, error.what])
    # The study with hazards is named after the safe one, with a plus.
    risky = bool(part.get("reference") or part.get("must_hold"))
    chosen = next((s for s in studies if ("+" in s.title) == risky), studies[0])
    return dataclasses.replace(
        story,
        trials=chosen.trials,
        importance=chosen.importance,
        importance_method=chosen.importance_method,
        arms=story.arms or chosen.arms,
        nranks=story.nranks or chosen.nranks,
        created=story.created or chosen.created,
        pinned=story.pinned or chosen.pinned,
    )


def from_document(path: Path, part: Mapping[str, Any]) -> Story:
    """Return the story of a sweep that kept the default, or whose profile is not here.

    Raises:
        CollbenchError: a field of the document has a wrong type.
    """
    found = found_in(part, str(path))
    return Story(
        title=f"Sweep {found.spec or path.stem}",
        path=str(path),
        kind="sweep",
        backend=found.backend,
        nranks=found.nranks,
        workload=found.workload,
        machine=found.machine,
        settings=found.settings,
        baseline=found.baseline,
        document=found.model_dump(),
        guards=found.guards(),
        ablation=found.removals(),
        front=found.points(),
        warnings=found.warnings,
    )
