"""A copy of /proc/PID/environ: the environment at exec, unless a title was written over it."""

from __future__ import annotations

from collections.abc import Mapping

from collbench.readers import Given, Reading

_PROBE = 1 << 20
"""Bytes from which it is told what a file is."""


def looks_like(data: bytes) -> bool:
    """Return whether bytes are such a copy: NAME=VALUE entries that end in NUL, or NULs alone."""
    if b"\0" not in data or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return False
    stripped = data.strip(b"\0")[:_PROBE]
    if not stripped:
        return True
    entries = [entry for entry in stripped.split(b"\0") if entry]
    good = sum(b"=" in entry and entry.split(b"=", 1)[0].isascii() for entry in entries)
    text = sum(byte in b"\t\n\r" or byte >= 32 for byte in stripped.replace(b"\0", b""))
    return good * 2 >= len(entries) and text * 20 >= (len(stripped) - stripped.count(0)) * 19


def environ_reading(data: bytes, given: Given) -> Reading:
    """Return what is visible of an environment, and a verdict per wanted variable."""
    leading = len(data) - len(data.lstrip(b"\0"))
    pieces = data.split(b"\0")
    entries: dict[str, str] = {}
    for entry in pieces:
        name, equals, value = entry.partition(b"=")
        if equals:
            # The first of two entries of one name is the one that getenv finds.
            entries.setdefault(_text(name), _text(value))
    # A title reaches into the block from its front: NUL bytes there, or a piece that is no entry.
    wiped = leading > 0 or b"=" not in pieces[0]
    cut = _text(pieces[-1].partition(b"=")[0]) if pieces[-1] else None
    holes = b"\0\0" in data.lstrip(b"\0")
    facts = {
        "bytes": len(data),
        "leading_nul": leading,
        "entries": entries,
        "verdict": dict.fromkeys(given.profile or {}, "unknown")
        if wiped
        else verdict(entries, given.profile or {}, cut=cut, holes=holes),
    }
    signs = {"wiped": wiped, "cut": cut}
    return Reading(kind="proc_environ", facts=facts, signs=signs)


def verdict(
    entries: Mapping[str, str], profile: Mapping[str, str], *, cut: str | None, holes: bool
) -> dict[str, str]:
    """Return live, differs, absent or unknown per variable of the profile.

    Args:
        entries: Name -> value, of a block over which no title was written.
        profile: Name -> wanted value.
        cut: Name of a last entry without its end: the file is cut in it.
        holes: NUL bytes between entries: something was wiped there, nobody knows what.
    """
    lacking = "unknown" if cut is not None or holes else "absent"
    return {
        name: lacking
        if name not in entries
        else "unknown"
        if name == cut
        else "live"
        if entries[name] == want
        else "differs"
        for name, want in profile.items()
    }


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
