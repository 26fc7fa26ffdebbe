"""Where profiles lie: publish whole or not at all, find, load, list.

A root holds ``<machine>/<id>/`` (or ``<id>/``), and the links ``current`` and ``previous``, which
`collbench.profiles.current` moves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.files import write_atomic
from collbench.profiles import ID, Profile, from_json, sealed, to_json
from collbench.profiles.env_file import env_text, read_env, representable

ENV_FILE = "profile.env"
JSON_FILE = "profile.json"
MAX_JSON_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """What a PROFILE argument led to."""

    path: Path
    """The profile's directory, or a bare env file."""
    values: dict[str, str]
    """All that the env file sets, markers included."""
    profile: Profile | None
    """None for a bare env file."""

    @property
    def settings(self) -> dict[str, str]:
        """The values that decide whether the profile is live: settings and pins."""
        return {n: v for n, v in self.values.items() if n not in ("COLLBENCH_PROFILE", "SPT_NOENV")}

    @property
    def env_path(self) -> Path:
        """The env file, whether or not it exists."""
        return self.path / ENV_FILE if self.profile else self.path

    @property
    def id(self) -> str:
        """The profile's id; empty for an env file without a marker."""
        return self.profile.id if self.profile else self.values.get("COLLBENCH_PROFILE", "")


def roots() -> list[Path]:
    """Return the folders where profiles are looked for, in order."""
    own = os.environ.get("COLLBENCH_RESULTS")
    return [*([Path(own)] if own else []), Path("results"), Path("/etc/collbench")]


def publish(
    results_dir: Path,
    machine_slug: str,
    profile: Profile,
    *,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write ``results_dir/machine_slug/<id>/``, whole or not at all, and return it.

    The directory is made under a temporary name and renamed. Where a profile of this id exists
    already it is replaced, and files that only the old one has (its records) are kept.

    Args:
        results_dir: The root.
        machine_slug: Name of the machine's folder.
        profile: Without id: it is computed here.
        files: Further files, name relative to the profile's directory -> text; their names are
            added to the profile's records.

    Raises:
        CollbenchError: the profile is not valid, or the folder cannot be written.
    """
    files = dict(files or {})
    records = tuple(dict.fromkeys([*profile.records, *files]))
    profile = sealed(dataclasses.replace(profile, records=records))
    texts = {JSON_FILE: to_json(profile), **files}
    if all(map(representable, [*profile.settings.values(), *profile.pinned.values()])):
        texts[ENV_FILE] = env_text(profile)
    target = results_dir / machine_slug / profile.id
    with new_directory(target) as fresh:
        if target.is_dir():
            shutil.copytree(target, fresh, dirs_exist_ok=True, symlinks=True)
            (fresh / ENV_FILE).unlink(missing_ok=True)
        for name, text in texts.items():
            path = fresh / name
            if not path.resolve().is_relative_to(fresh.resolve()):
                raise CollbenchError(f"profile: file {name!r} lies outside its directory")
            write_atomic(path, text)
    return target


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Give a directory to fill; it takes the place of `target` at the end, or vanishes."""
    fresh = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        fresh.chmod(0o755)
        yield fresh
        old = fresh.with_name(fresh.name + ".old")
        if target.exists():
            target.rename(old)
        try:
            fresh.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise CollbenchError(
            f"{target}: cannot be written: {error.strerror or error}",
            fix="choose another folder with --out, or free space and permissions there",
        ) from error
    finally:
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)


def find(reference: str | Path) -> Path:
    """Return the directory or bare env file that PROFILE means.

    Args:
        reference: A directory, a ``profile.env`` or other env file, an id (or its first six or
            more digits), or ``current``.

    Raises:
        CollbenchError: there is no such profile, or several begin like that.
    """
    text = str(reference)
    path = Path(reference)
    if path.name == JSON_FILE and path.is_file():
        return path.parent
    if path.is_file():
        beside = path.name == ENV_FILE and (path.parent / JSON_FILE).is_file()
        return path.parent if beside else path
    if (path / JSON_FILE).is_file():
        return path
    if "/" not in text:
        for root in roots():
            if text in ("current", "previous") and (root / text / JSON_FILE).is_file():
                return root / text
        if 6 <= len(text) <= 12 and set(text) <= set("0123456789abcdef"):
            found = {p.name: p for p in reversed(list(directories())) if p.name.startswith(text)}
            if len(found) == 1:
                return next(iter(found.values()))
            if found:
                raise CollbenchError(
                    f"PROFILE: several profiles begin with {text}: {', '.join(sorted(found))}",
                    fix="give more digits",
                )
    raise CollbenchError(
        f"PROFILE: no profile {text!r}: neither a directory, an env file, an id nor 'current' in "
        + ", ".join(map(str, roots())),
        fix="collbench profile list   shows the profiles; collbench sweep makes one",
    )


def load(reference: str | Path) -> Reference:
    """Return the profile or bare env file that PROFILE means.

    Raises:
        CollbenchError: not found, not readable, or profile.env and profile.json disagree.
    """
    path = find(reference)
    if path.is_file():
        return Reference(path=path, values=read_env(path), profile=None)
    profile = read_profile(path)
    values = {
        **profile.settings,
        **profile.pinned,
        "COLLBENCH_PROFILE": profile.id,
        "SPT_NOENV": "1",
    }
    if (path / ENV_FILE).is_file():
        written = read_env(path / ENV_FILE)
        if written != values:
            names = sorted(n for n in {*written, *values} if written.get(n) != values.get(n))
            raise CollbenchError(
                f"{path / ENV_FILE}: disagrees with {JSON_FILE} beside it: {', '.join(names)}",
                fix="one of them was edited: restore it, or copy the env file elsewhere and use "
                "the copy",
            )
    return Reference(path=path, values=values, profile=profile)


def read_profile(directory: Path) -> Profile:
    """Return the profile in a directory.

    Raises:
        CollbenchError: missing, unreadable or wrong.
    """
    path = directory / JSON_FILE
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise CollbenchError(f"{path}: larger than {MAX_JSON_BYTES} bytes: not a profile")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise CollbenchError(f"{path}: {error.strerror}", fix="check the path") from error
    except UnicodeDecodeError as error:
        raise CollbenchError(f"{path}: not UTF-8 text") from error
    return from_json(text, where=str(path))


def directories(among: list[Path] | None = None) -> Iterator[Path]:
    """Yield the directories of all profiles below the roots, each once."""
    seen: set[Path] = set()
    for root in roots() if among is None else among:
        for pattern in ("*", "*/*"):
            with contextlib.suppress(OSError):
                for path in sorted(root.glob(f"{pattern}/{JSON_FILE}")):
                    directory = path.parent
                    real = directory.resolve()
                    if ID.fullmatch(directory.name) and real not in seen:
                        seen.add(real)
                        yield directory
