"""A copy of /proc/PID/environ: the environment at exec, unless a title was written over it."""

from __future__ import annotations

from collections.abc import Mapping

from collbench.readers import Given, Reading
from collbench.readers.text import printable


def looks_like(data: bytes) -> bool:
    """Return whether bytes are such a copy: NAME=VALUE entries that end in NUL, or NULs alone."""
    if b"\0" not in data:
        return False
    stripped = data.strip(b"\0")
    if not stripped:
        return True
    entries = [entry for entry in stripped.split(b"\0") if entry]
    good = sum(b"=" in entry and entry.split(b"=", 1)[0].isascii() for entry in entries)
    text = sum(byte in b"\t\n\r" or byte >= 32 for byte in stripped.replace(b"\0", b""))
    return good * 2 >= len(entries) and text * 20 >= (len(stripped) - stripped.count(0)) * 19


def environ_reading(data: bytes, given: Given) -> Reading:
    """Return what is visible of an environment, and a verdict per wanted variable."""
    leading = len(data) - len(data.lstrip(b"\0"))
    entries: dict[str, str] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals:
            # The first of two entries of one name is the one that getenv finds.
            entries.setdefault(_text(name), _text(value))
    wiped = leading > 0 or b"\0\0" in data.strip(b"\0") or data.endswith(b"\0\0")
    facts = {
        "bytes": len(data),
        "leading_nul": leading,
        "entries": entries,
        "verdict": verdict(entries, given.profile or {}, wiped=wiped),
    }
    return Reading(kind="proc_environ", facts=facts, signs={"wiped": wiped})


def verdict(
    entries: Mapping[str, str], profile: Mapping[str, str], *, wiped: bool
) -> dict[str, str]:
    """Return live, differs, absent or unknown per variable of the profile.

    A block over which a title was written shows values of the start of the process that may have
    been changed since; nothing in it decides anything, visible or not.
    """
    if wiped:
        return dict.fromkeys(profile, "unknown")
    return {
        name: "absent" if name not in entries else "live" if entries[name] == want else "differs"
        for name, want in profile.items()
    }


def _text(raw: bytes) -> str:
    return printable(raw.decode("utf-8", "backslashreplace"), limit=4096)
