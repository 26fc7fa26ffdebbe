"""Read a folder of results: per machine its profile, sweep, checks and pairs. Starts nothing.

Files may come from anywhere: one that is cut, too large or of another kind is listed as unreadable
and never trusted further.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collbench.errors import CollbenchError
from collbench.profiles import ID, Profile, from_json

_MOST_BYTES = 64 << 20
_DEPTH = 8
_INNER = frozenset({"studies", "records", "checks"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One re-measurement of a profile."""

    when: datetime
    verdict: str
    ratio: float | None = None
    profile: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The newest measurement between two ranks of a machine."""

    latency_us: float
    bandwidth_gbs: float


@dataclass(kw_only=True, slots=True)
class Machine:
    """What one machine left."""

    name: str
    """Folder of the machine, relative to the fleet's."""
    host: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    """The newest fingerprint."""
    facts_at: datetime | None = None
    profile: Profile | None = None
    profile_path: Path | None = None
    created: datetime | None = None
    """Of the profile."""
    swept: datetime | None = None
    verdict: str | None = None
    """Of the newest sweep: ``profile`` or ``keep_default``."""
    checks: list[Check] = field(default_factory=list)
    """Oldest first."""
    pairs: dict[tuple[int, int], Pair] = field(default_factory=dict)
    pairs_at: datetime | None = None

    @property
    def last_check(self) -> Check | None:
        """The newest check, if it was of the profile that is shown."""
        return self.checks[-1] if self.checks else None


@dataclass(kw_only=True, slots=True)
class Fleet:
    """Every machine in a folder."""

    machines: list[Machine] = field(default_factory=list)
    unreadable: list[tuple[Path, str]] = field(default_factory=list)


def collect(folder: Path) -> Fleet:
    """Read every result below `folder`.

    Raises:
        CollbenchError: it is no folder, or holds no result of any machine.
    """
    if not folder.is_dir():
        raise CollbenchError(f"{folder}: not a folder", fix="give the --out of your sweeps")
    fleet = Fleet()
    found: dict[str, Machine] = {}
    for path in _files(folder):
        try:
            plain = json.loads(_text(path))
        except (OSError, ValueError, RecursionError) as error:
            fleet.unreadable.append((path, str(error)[:200]))
            continue
        if not isinstance(plain, dict):
            continue
        name = _machine_of(path, folder)
        machine = found.get(name) or Machine(name=name)
        try:
            if _take(machine, path, plain):
                found[name] = machine
        except CollbenchError as error:
            fleet.unreadable.append((path, error.what.removeprefix(f"{path}: ")))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            fleet.unreadable.append((path, f"not of the form it claims: {str(error)[:160]}"))
    fleet.machines = sorted(found.values(), key=lambda one: one.name)
    for machine in fleet.machines:
        machine.checks.sort(key=lambda check: check.when)
    if not fleet.machines and not fleet.unreadable:
        raise CollbenchError(
            f"{folder}: no profile, sweep, bench or check of any machine in it",
            fix="give the --out of your sweeps",
        )
    return fleet


def _files(folder: Path) -> Iterator[Path]:
    base = len(folder.parts)
    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name != "slurm" and len(here.parts) - base < _DEPTH
        )
        for name in sorted(files):
            if name.endswith(".json") and not name.startswith("."):
                yield here / name


def _text(path: Path) -> str:
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"larger than {_MOST_BYTES >> 20} MiB")
    return path.read_text(encoding="utf-8")


def _machine_of(path: Path, folder: Path) -> str:
    """Return the machine's folder: profiles, studies and records lie below it."""
    here = path.parent
    while here != folder and (here.name in _INNER or ID.fullmatch(here.name)):
        here = here.parent
    name = str(here.relative_to(folder))
    return folder.resolve().name if name == "." else name


def _take(machine: Machine, path: Path, plain: Mapping[str, Any]) -> bool:
    """Take in one file; return whether it says something of a machine."""
    if plain.get("kind") == "run":  # records/profile.json is one too
        _take_record(machine, plain)
    elif path.name == "profile.json":
        _take_profile(machine, path, plain)
    elif plain.get("command") == "sweep" and "verdict" in plain:
        when = _modified(path)
        if isinstance(plain.get("machine"), dict):
            _take_facts(machine, dict(plain["machine"]), when)
        if machine.swept is None or when > machine.swept:
            machine.swept, machine.verdict = when, str(plain["verdict"])
    elif plain.get("command") == "check" and "verdict" in plain:
        ratio = plain.get("ratio")
        machine.checks.append(
            Check(
                when=_time(plain.get("created")) or _modified(path),
                verdict=str(plain["verdict"]),
                ratio=float(ratio) if isinstance(ratio, int | float) else None,
                profile=str(plain.get("profile") or "") or None,
            )
        )
    else:
        return False
    return True


def _take_profile(machine: Machine, path: Path, plain: Mapping[str, Any]) -> None:
    profile = from_json(json.dumps(plain), where=str(path))
    created = _time(profile.created) or _modified(path)
    _take_facts(machine, profile.machine, created)
    if machine.created is None or created > machine.created:
        machine.profile, machine.profile_path = profile, path.parent
        machine.created = created


def _take_record(machine: Machine, plain: Mapping[str, Any]) -> None:
    when = _time(plain.get("created")) or datetime.fromtimestamp(0, UTC)
    _take_facts(machine, dict(plain["machine"]), when)
    pairs: dict[tuple[int, int], Pair] = {}
    for launch in plain["launches"]:
        for pair in launch.get("pairs") or ():
            pairs[int(pair["src"]), int(pair["dst"])] = Pair(
                latency_us=float(pair["latency_us"]), bandwidth_gbs=float(pair["bandwidth_gbs"])
            )
    if pairs and (machine.pairs_at is None or when > machine.pairs_at):
        machine.pairs, machine.pairs_at = pairs, when


def _take_facts(machine: Machine, facts: dict[str, Any], when: datetime) -> None:
    if machine.facts_at is None or when > machine.facts_at:
        machine.facts, machine.facts_at = facts, when
        machine.host = str(facts.get("host") or "")


def _time(text: Any) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _modified(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
