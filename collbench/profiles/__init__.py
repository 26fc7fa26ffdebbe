"""A profile: confirmed settings, what they were measured under, and the evidence.

Standard library only, because `run` and `verify` start in a quarter of a second. Where profiles
lie is in `collbench.profiles.store`, how they are written for other programs in
`collbench.profiles.env_file`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from collbench.errors import CollbenchError
from collbench.knobs import registry

SCHEMA = 1
MARKERS = ("COLLBENCH_PROFILE", "SPT_NOENV")
"""Names in every env file that say which profile it is; they tune nothing."""
ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """What the settings were confirmed for."""

    workload: str = ""
    """Name of the workload."""
    nranks: int = 0
    sizes: tuple[int, ...] = ()
    """Message sizes in it, bytes."""
    objective: str = ""
    """decode, prefill or pareto."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Settings that were confirmed on one machine and one library version."""

    id: str = ""
    """Twelve hexadecimal digits, see `profile_id`; `publish` fills it in."""
    created: str = ""
    """UTC, ISO 8601; `publish` fills it in."""
    collbench: str = ""
    """Version of the writer."""
    method: int = 0
    """Version of the measuring method."""
    backend: str = "nccl"
    settings: dict[str, str]
    """The confirmed settings; never empty."""
    baseline: dict[str, str] = field(default_factory=dict)
    """What stood under default and candidates alike because a server writes it (``--like``)."""
    pinned: dict[str, str] = field(default_factory=dict)
    """Registered variables found in the environment of the sweep; kept as they were."""
    scope: Scope = Scope()
    machine: dict[str, Any] = field(default_factory=dict)
    """The fingerprint, as plain data."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """default_us, winner_us, default_exposed_us, winner_exposed_us, ratio, interval,
    search_value_us, noise_pct, pairs, ablation, guard, proof.
    """
    hazards: tuple[str, ...] = ()
    """Hazards that were allowed and that the settings have."""
    conditions: dict[str, Any] = field(default_factory=dict)
    """What has to be the same for the numbers to hold, for example ``like``."""
    not_searched: tuple[str, ...] = ()
    """Hazards that were left out."""
    verdict: str = "profile"
    records: tuple[str, ...] = ()
    """Run records, relative to the profile's directory."""
    schema: int = SCHEMA

    @property
    def library(self) -> str:
        """Communication library the numbers belong to, for example ``NCCL 2.28.9``."""
        return str(self.machine.get("library") or "")

    @property
    def gain_pct(self) -> float | None:
        """Confirmed gain in per cent of the default's time."""
        ratio = self.evidence.get("ratio")
        return (1 - ratio) * 100 if isinstance(ratio, int | float) else None


def machine_class(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a fingerprint that two machines with one profile have in common."""
    gpus = machine.get("gpus") or []
    return {
        "gpus": [[gpu.get("name"), gpu.get("numa_node")] for gpu in gpus],
        "cpu": machine.get("cpu") or "",
        "cpus": machine.get("cpus") or 0,
        "numa_nodes": machine.get("numa_nodes"),
    }


def profile_id(profile: Profile) -> str:
    """Return the digest of settings, baseline, scope, machine class and library version."""
    parts = {
        "settings": profile.settings,
        "baseline": profile.baseline,
        "pinned": profile.pinned,
        "scope": dataclasses.asdict(profile.scope),
        "machine": machine_class(profile.machine),
        "library": profile.library,
        "backend": profile.backend,
    }
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def machine_slug(machine: Mapping[str, Any]) -> str:
    """Return a folder name for a machine, for example ``2x-nvidia-h200-node1``."""
    gpus = machine.get("gpus") or []
    kind = f"{len(gpus)}x-{gpus[0].get('name', 'gpu')}" if gpus else "cpu"
    slug = re.sub(r"[^a-z0-9]+", "-", f"{kind}-{machine.get('host') or 'machine'}".lower())
    return slug.strip("-")[:80]


def check_names(values: Mapping[str, str], *, where: str) -> None:
    """Refuse names outside the registry: a profile must not set PATH or LD_PRELOAD.

    Raises:
        CollbenchError: a name is not registered.
    """
    for name in values:
        if name not in registry():
            raise CollbenchError(
                f"{where}: {name!r} is not in the registry of settings",
                fix="a profile holds registered variables only (docs/knobs.md); take it out",
            )


def sealed(profile: Profile) -> Profile:
    """Return the profile with its id and time of creation.

    Raises:
        CollbenchError: no settings, a name is not registered, or one is set and pinned.
    """
    if not profile.settings:
        raise CollbenchError(
            "profile: no settings", fix="where the default is best there is no profile to publish"
        )
    for part in (profile.settings, profile.pinned, profile.baseline):
        check_names(part, where="profile")
    both = sorted(profile.settings.keys() & profile.pinned.keys())
    if both:
        raise CollbenchError(
            f"profile: {', '.join(both)}: both a setting and pinned; one file cannot hold it twice",
            fix="a pinned variable is fixed while searching: leave it out of the settings",
        )
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return dataclasses.replace(
        profile, id=profile_id(profile), created=profile.created or now, schema=SCHEMA
    )


def to_json(profile: Profile) -> str:
    """Return the text of ``profile.json``."""
    plain = dataclasses.asdict(profile)
    head = {"schema": plain.pop("schema"), "kind": "profile"}
    return json.dumps({**head, **plain}, indent=1, allow_nan=False) + "\n"


def from_json(text: str, *, where: str) -> Profile:
    """Read ``profile.json`` of any schema up to this one; unknown fields are ignored.

    Raises:
        CollbenchError: not a profile, of a newer schema, or a field is wrong (named).
    """
    try:
        plain = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise CollbenchError(
            f"{where}: not a profile: {str(error)[:120]}",
            fix="a cut file cannot be used: publish the profile again, or take it from a backup",
        ) from error
    if not isinstance(plain, dict) or plain.pop("kind", None) != "profile":
        raise CollbenchError(
            f"{where}: not a profile: 'kind' is not 'profile'",
            fix="give a profile's directory, its profile.env or its id",
        )
    schema = plain.get("schema")
    if not isinstance(schema, int) or schema < 1:
        raise CollbenchError(f"{where}: schema: {schema!r} is not a whole number from 1")
    if schema > SCHEMA:
        raise CollbenchError(
            f"{where}: schema {schema} is newer than this collbench reads (up to {SCHEMA})",
            fix="pip install --upgrade collbench",
        )
    known = {f.name for f in dataclasses.fields(Profile)}
    fields = {name: value for name, value in plain.items() if name in known}
    _check_types(fields, where)
    scope = fields.get("scope", {})
    fields["scope"] = Scope(
        workload=scope.get("workload", ""),
        nranks=scope.get("nranks", 0),
        sizes=tuple(scope.get("sizes", ())),
        objective=scope.get("objective", ""),
    )
    for name in ("hazards", "not_searched", "records"):
        fields[name] = tuple(fields.get(name, ()))
    profile = Profile(**fields)
    for part in (profile.settings, profile.pinned, profile.baseline):
        check_names(part, where=where)
    return profile


def _check_types(fields: Mapping[str, Any], where: str) -> None:
    """Check every field by the type of the dataclass, so that nothing fails later."""
    wanted: dict[str, tuple[str, Any]] = {
        **dict.fromkeys(("id", "created", "collbench", "backend", "verdict"), ("text", str)),
        **dict.fromkeys(("method", "schema"), ("a whole number", int)),
        **dict.fromkeys(
            ("settings", "baseline", "pinned", "scope", "machine", "evidence", "conditions"),
            ("an object", dict),
        ),
        **dict.fromkeys(("hazards", "not_searched", "records"), ("a list of texts", list)),
    }
    for name, value in fields.items():
        what, kind = wanted[name]
        good = isinstance(value, kind) and not isinstance(value, bool)
        if name in ("settings", "baseline", "pinned"):
            what = "an object of texts"
            good = good and all(isinstance(v, str) and "\0" not in v for v in value.values())
        elif name == "records":
            what = "a list of files inside the profile's directory"
            good = good and all(isinstance(v, str) and _inside(v) for v in value)
        elif kind is list:
            good = good and all(isinstance(v, str) for v in value)
        elif name == "machine":
            what = "an object whose gpus are a list of objects"
            good = good and _good_gpus(value.get("gpus"))
        elif name == "evidence":
            what = "an object whose ratio is a number and whose interval is two"
            good = good and _good_evidence(value)
        elif name == "scope":
            what = "an object of workload, nranks, sizes (whole numbers) and objective"
            good = good and _good_scope(value)
        if not good:
            raise CollbenchError(f"{where}: {name}: {value!r:.80} is not {what}")
    if not fields.get("settings"):
        raise CollbenchError(f"{where}: settings: missing or empty")
    if not ID.fullmatch(fields.get("id", "")):
        raise CollbenchError(
            f"{where}: id: {fields.get('id')!r:.80} is not twelve hexadecimal digits"
        )


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _good_gpus(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(g, dict) for g in value))


def _good_evidence(value: Mapping[str, Any]) -> bool:
    def number(one: Any) -> bool:
        return isinstance(one, int | float) and not isinstance(one, bool)

    ratio, interval = value.get("ratio"), value.get("interval")
    return (ratio is None or number(ratio)) and (
        interval is None
        or (isinstance(interval, list) and len(interval) == 2 and all(map(number, interval)))
    )


def _inside(name: str) -> bool:
    """Return whether a relative name cannot lead out of the directory it is relative to."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _good_scope(value: Mapping[str, Any]) -> bool:
    sizes = value.get("sizes", [])
    return (
        isinstance(value.get("workload", ""), str)
        and isinstance(value.get("objective", ""), str)
        and isinstance(value.get("nranks", 0), int)
        and isinstance(sizes, list)
        and all(isinstance(size, int) for size in sizes)
    )
