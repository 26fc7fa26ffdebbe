"""Which profile is in force: the links ``current`` and ``previous`` of a root."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from collbench.errors import CollbenchError
from collbench.profiles.store import JSON_FILE, load, new_directory, roots


def root_of(directory: Path) -> Path:
    """Return the root that a profile's directory lies in."""
    real = directory.resolve()
    for root in roots():
        if root.is_dir() and real.is_relative_to(root.resolve()):
            return root
    return real.parent.parent


def activate(reference: str | Path, *, at: Path | None = None) -> tuple[Path, str | None]:
    """Make ``current`` mean this profile; return the link and what it meant before.

    Args:
        reference: PROFILE.
        at: Root whose link is moved; a profile that lies elsewhere is copied there first. None:
            the root that the profile lies in.

    Raises:
        CollbenchError: not a published profile, the root cannot be written, or it is none where
            ``current`` is looked for.
    """
    loaded = load(reference)
    if loaded.profile is None:
        raise CollbenchError(
            f"{loaded.path}: a bare env file cannot be activated",
            fix="give a profile that sweep published",
        )
    directory = loaded.path.resolve()
    root = at if at is not None else root_of(directory)
    if at is None and root not in roots():
        raise CollbenchError(
            f"{directory}: lies in none of the folders where `current` is looked for",
            fix="name one with --at, for example --at results: the profile is copied there",
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(root, error) from error
    if not directory.is_relative_to(root.resolve()):
        target = root / loaded.profile.id
        with new_directory(target) as fresh:
            shutil.copytree(directory, fresh, dirs_exist_ok=True)
        directory = target.resolve()
    before = _meaning(root / "current")
    relative = os.path.relpath(directory, root.resolve())
    if before == relative:
        return root / "current", before
    if active(root) is not None and before is not None:  # never back to what has gone
        _link(root / "previous", before)
    _link(root / "current", relative)
    return root / "current", before


def rollback(*, at: Path | None = None) -> tuple[Path, str, str]:
    """Swap ``current`` and ``previous``; return the link, what it means now and meant before.

    Raises:
        CollbenchError: there is nothing to go back to.
    """
    candidates = [at] if at is not None else roots()
    root = next((r for r in candidates if (r / "previous" / JSON_FILE).is_file()), None)
    if root is None:
        raise CollbenchError(
            "rollback: no previous profile in " + ", ".join(map(str, candidates)),
            fix="collbench profile activate PROFILE",
        )
    current, previous = _meaning(root / "current"), _meaning(root / "previous")
    if current is None or previous is None:
        raise CollbenchError(
            f"{root}: 'current' or 'previous' is not a link", fix="remove it, and activate again"
        )
    _link(root / "current", previous)
    _link(root / "previous", current)
    return root / "current", previous, current


def active(root: Path) -> Path | None:
    """Return the directory that ``current`` of a root means, if any."""
    link = root / "current"
    return link.resolve() if (link / JSON_FILE).is_file() else None


def _meaning(link: Path) -> str | None:
    return str(link.readlink()) if link.is_symlink() else None


def _link(link: Path, meaning: str) -> None:
    if link.exists() and not link.is_symlink():
        raise CollbenchError(f"{link}: exists and is not a link", fix="move it away")
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(meaning)
        temporary.replace(link)
    except OSError as error:
        raise _not_writable(link, error) from error


def _not_writable(path: Path, error: OSError) -> CollbenchError:
    return CollbenchError(
        f"{path}: cannot be written: {error.strerror or error}",
        fix="run as a user who may write there, or give another folder with --at",
    )
