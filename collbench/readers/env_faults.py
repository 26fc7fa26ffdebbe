"""Lines of an environment file that readers take differently, and the file's kind as facts."""

from __future__ import annotations

import re
from typing import Any

from collbench.readers import Given, Reading, UnreadableError
from collbench.readers.env_files import BOM, Refused, read_with
from collbench.readers.text import Section

CASE_READERS = ("docker", "sh", "compose", "systemd", "nccl_conf")
_LINE = re.compile(r"(\s*)(export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)([ \t]*)(?:(=)(.*))?", re.DOTALL)


def faults(text: str) -> list[tuple[int, str]]:
    r"""Return (line, fault) of the lines that name a variable; a duplicate at its later line.

    >>> faults("A=1\nexport A='2'\n")
    [(2, 'duplicate'), (2, 'export'), (2, 'quotes')]
    """
    found: list[tuple[int, str]] = []
    seen: set[str] = set()
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw
        if line.startswith(BOM):
            line = line[1:]
        returned = line.endswith("\r")
        line = line.removesuffix("\r")
        match = _LINE.fullmatch(line)
        if not match or (not match[5] and not _is_bare(line)):
            continue
        names = [name for name, there in _signs(match, line, returned).items() if there]
        if raw.startswith(BOM):
            names.append("bom")
        if match[3] in seen:
            names.append("duplicate")
        seen.add(match[3])
        found += [(number, name) for name in sorted(names)]
    return found


def name_of(line: str) -> str | None:
    """Return the variable that a line names."""
    match = _LINE.fullmatch(line.removeprefix(BOM).removesuffix("\r"))
    return match[3] if match else None


def _is_bare(line: str) -> bool:
    return re.fullmatch(r"\s*(?:export[ \t]+)?[A-Za-z_][A-Za-z0-9_]*[ \t]*", line) is not None


def _signs(match: re.Match[str], line: str, returned: bool) -> dict[str, bool]:
    value = match[6] or ""
    bare = unquoted(value)
    return {
        "export": bool(match[2]),
        "quotes": value.lstrip()[:1] in ("'", '"') or "'" in value or '"' in value,
        "comment": re.search(r"[ \t]#", bare) is not None,
        "dollar": "$" in unquoted(value, single_only=True),
        "trailing_blank": line != line.rstrip(" \t"),
        "leading_blank": bool(match[1])
        or (bool(match[5]) and bool(match[4] or value.startswith((" ", "\t")))),
        "crlf": returned,
        "semicolon": ";" in bare.partition(" #")[0],
        "no_value": not match[5],
    }


def unquoted(value: str, *, single_only: bool = False) -> str:
    """Return a value without what stands in quotes (in single quotes only, if so asked)."""
    pattern = r"'[^']*'" if single_only else r"'[^']*'|\"(?:[^\"\\]|\\.)*\""
    return re.sub(pattern, "", value)


def named_lines(text: str) -> dict[str, int]:
    """Return name -> line of its first assignment."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        match = _LINE.fullmatch(line.removeprefix(BOM).removesuffix("\r"))
        if match and match[5]:
            found.setdefault(match[3], number)
    return found


def env_file_reading(section: Section, given: Given) -> Reading:
    """Return values per reader and faults of one environment file.

    Raises:
        UnreadableError: no line of it names a variable.
    """
    text = section.text
    version = tuple(int(part) for part in re.findall(r"\d+", given.nccl_version or "")[:3])
    found = faults(text)
    lines = named_lines(text)
    if not lines and not found:
        raise UnreadableError("no line names a variable", line=section.start)
    values: dict[str, Any] = {}
    for reader in CASE_READERS:
        read = read_with(reader, text, version)
        values[reader] = {"error": read.reason} if isinstance(read, Refused) else read
    offset = section.start - 1
    return Reading(
        kind="env_file",
        facts={"values": values, "faults": [[line, name] for line, name in found]},
        signs={"version": version, "names": lines, "offset": offset},
        lines={f"var:{name}": line + offset for name, line in lines.items()},
    )
