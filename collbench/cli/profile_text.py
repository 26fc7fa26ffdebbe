"""What `collbench profile` says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collbench.errors import CollbenchError
from collbench.live.text import printable, shown_value
from collbench.profiles import Profile
from collbench.profiles.current import active, root_of
from collbench.profiles.env_file import read_text
from collbench.profiles.lint import lint_text, lint_values, version_of
from collbench.profiles.store import (
    ENV_FILE,
    JSON_FILE,
    Reference,
    directories,
    find,
    load,
    read_profile,
    roots,
)


def show_document(loaded: Reference) -> dict[str, Any]:
    """Return the document of `profile show`."""
    import json

    from collbench.profiles import to_json

    body = json.loads(to_json(loaded.profile)) if loaded.profile else {"values": _shown(loaded)}
    return {
        **body,
        "schema": 1,
        "command": "profile show",
        "exit_code": 0,
        "path": str(loaded.path),
    }


def _shown(loaded: Reference) -> dict[str, str | None]:
    """Return an env file's values without its secrets."""
    return {name: shown_value(name, value) for name, value in loaded.values.items()}


def show_lines(loaded: Reference) -> Iterator[str]:
    """Yield the text of `profile show`."""
    profile = loaded.profile
    if profile is None:
        yield f"env file {printable(str(loaded.path))}, without a profile beside it"
    else:
        yield f"profile {profile.id}  {printable(str(loaded.path))}"
        yield f"  made      {printable(profile.created)}, {printable(profile.library)}"
        yield f"  machine   {printable(machine_text(profile))}"
        scope = profile.scope
        yield f"  for       {printable(scope.workload)}, {scope.nranks} ranks, {scope.objective}"
        yield f"  gain      {gain_text(profile)}"
    for name, value in (profile.settings if profile else loaded.settings).items():
        yield f"  {name}={shown_value(name, value)}"
    if profile is not None:
        for name, value in profile.pinned.items():
            yield f"  {name}={printable(value)}  (pinned)"
        for name, value in profile.baseline.items():
            yield f"  measured with {name}={printable(value)}"
        if profile.hazards:
            yield f"  hazards   {printable(', '.join(profile.hazards))}"
        if profile.not_searched:
            yield f"  not searched: {printable(', '.join(profile.not_searched))}"


def machine_text(profile: Profile) -> str:
    """Return a machine in a few words."""
    gpus = profile.machine.get("gpus") or []
    host = profile.machine.get("host") or "unknown host"
    if not gpus:
        return f"{host}, {profile.machine.get('cpu') or 'no GPU'}"
    return f"{host}, {len(gpus)}x {gpus[0].get('name')}"


def gain_text(profile: Profile) -> str:
    """Return the confirmed gain with its interval."""
    gain = profile.gain_pct
    if gain is None:
        return "not recorded"
    interval = profile.evidence.get("interval")
    text = f"{gain:.1f} % less time"
    if isinstance(interval, list) and len(interval) == 2:
        low, high = ((1 - float(bound)) * 100 for bound in reversed(interval))
        text += f" (95 %: {low:.1f} to {high:.1f})"
    return text


def list_document() -> dict[str, Any]:
    """Return the document of `profile list`: every profile, newest first."""
    found = []
    now = {path for root in roots() if (path := active(root)) is not None}
    for directory in directories():
        entry: dict[str, Any] = {"id": directory.name, "path": str(directory)}
        try:
            profile = read_profile(directory)
        except CollbenchError as error:
            nothing: dict[str, Any] = {
                "machine": "",
                "created": "",
                "library": "",
                "gain_pct": None,
                "settings": {},
            }
            state = {"state": "unreadable", "error": printable(error.what)}
            found.append({**entry, **nothing, **state})
            continue
        entry |= {
            "machine": printable(machine_text(profile)),
            "created": printable(profile.created),
            "library": printable(profile.library),
            "gain_pct": profile.gain_pct,
            "settings": {n: printable(v) for n, v in profile.settings.items()},
            "state": _state(directory, now),
        }
        found.append(entry)
    found.sort(key=lambda entry: str(entry.get("created", "")), reverse=True)
    return {"schema": 1, "command": "profile list", "exit_code": 0, "profiles": found}


def _state(directory: Path, now: set[Path]) -> str:
    if directory.resolve() in now:
        return "current"
    root = root_of(directory)
    previous = root / "previous"
    if (previous / JSON_FILE).is_file() and previous.resolve() == directory.resolve():
        return "previous"
    return "" if (directory / ENV_FILE).is_file() else "no env file"


def list_lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the text of `profile list`."""
    if not document["profiles"]:
        yield "no profiles in " + ", ".join(map(str, roots()))
        yield "  next: collbench sweep   makes one"
        return
    yield f"{'ID':12}  {'MADE':20}  {'GAIN':>7}  {'STATE':10}  MACHINE, SETTINGS"
    for entry in document["profiles"]:
        if entry["state"] == "unreadable":
            yield f"{entry['id']:12}  {'':20}  {'':>7}  unreadable  {entry['error']}"
            continue
        gain = "" if entry["gain_pct"] is None else f"{entry['gain_pct']:.1f} %"
        settings = " ".join(f"{n}={v}" for n, v in entry["settings"].items())
        yield (
            f"{entry['id']:12}  {entry['created']:20}  {gain:>7}  {entry['state']:10}  "
            f"{entry['machine']}: {settings}"
        )


def lint_reference(file: str, *, like: str, nccl_version: str | None) -> list[dict[str, Any]]:
    """Return the findings of `profile lint` for an env file or a profile.

    Raises:
        CollbenchError: not found, not readable, or a wrong version.
    """
    import os

    from collbench.live import conf_files

    version = version_of(nccl_version)
    path = find(file)
    stored = read_profile(path) if path.is_dir() else None
    if stored is not None and not version and stored.library.startswith("NCCL "):
        version = version_of(stored.library.removeprefix("NCCL "), where="library")
    options: dict[str, Any] = {
        "version": version,
        "like": like,
        "conf": conf_files.effective({"HOME": os.environ.get("HOME", "")}),
        "pinned": tuple(stored.pinned) if stored else (),
        "hazards": stored.hazards if stored else (),
    }
    env = path / ENV_FILE if path.is_dir() else path
    if stored is not None and not env.is_file():
        return [f.plain() for f in lint_values({**stored.settings, **stored.pinned}, **options)]
    found = lint_text(read_text(env), **options)
    if stored is not None:
        load(path)  # says so where the two files disagree
    return [finding.plain() for finding in found]


def stable_path(loaded: Reference) -> str | None:
    """Return the path through ``current`` where that means this profile."""
    if loaded.profile is None:
        return None
    root = root_of(loaded.path)
    if active(root) == loaded.path.resolve():
        return str((root / "current" / ENV_FILE).absolute())
    return None
