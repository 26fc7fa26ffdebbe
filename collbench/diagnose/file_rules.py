"""Environment files, and copies of /proc/PID/environ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collbench.diagnose.env_rules import NEXT_ABSENT
from collbench.findings import Finding
from collbench.readers import Given, Reading
from collbench.readers.env_faults import unquoted
from collbench.readers.text import printable

_PORTABLE = {
    "crlf": "env.crlf",
    "quotes": "env.quotes_kept",
    "semicolon": "env.sourced_semicolon",
}
ADVICE = {
    "env.crlf": "save the file with LF line ends (`sed -i 's/\\r$//' FILE`)",
    "env.quotes_kept": "write values without quotes: docker --env-file, kubectl and nccl.conf "
    "keep them",
    "env.sourced_semicolon": "do not source this file: pass it with --env-file, EnvironmentFile= "
    "or env_file:, or quote the value in a script of its own",
    "env.not_portable": "write bare NAME=VALUE lines, LF, comments on lines of their own "
    "(`collbench profile emit` does)",
}


def judge_env_file(reading: Reading, given: Given) -> list[Finding]:
    """Return lines that readers take differently, and values that the library refuses."""
    offset = reading.signs["offset"]
    found: dict[str, list[tuple[int, str]]] = {}
    for line, fault in reading.facts["faults"]:
        found.setdefault(_PORTABLE.get(fault, "env.not_portable"), []).append((line, fault))
    findings = [
        Finding(
            code=code,
            line=lines[0][0] + offset,
            evidence=", ".join(f"line {line + offset}: {fault}" for line, fault in lines[:8]),
            next=ADVICE[code],
        )
        for code, lines in found.items()
    ]
    intended = {
        name: value
        for reader in ("systemd", "sh", "compose")
        for name, value in _values(reading.facts["values"], reader).items()
        if value is not None
    }
    findings += _invalid(reading, intended, given)
    if given.profile is not None:
        findings += _against(reading, given.profile, intended)
    return findings


def _values(values: Mapping[str, Any], reader: str) -> Mapping[str, Any]:
    read = values.get(reader, {})
    return {} if "error" in read and len(read) == 1 else read


def _invalid(reading: Reading, intended: Mapping[str, str], given: Given) -> list[Finding]:
    """Ask the registry what the library that will read the file makes of each value."""
    if not given.nccl_version:
        return []
    from collbench.knobs import parse_version, registry
    from collbench.knobs.rules import check_value

    version = parse_version(given.nccl_version)
    for name, value in intended.items():
        knob = registry().get(name)
        text = unquoted(value).strip() or value.strip("\"' \r")
        if knob is None or knob.library != "nccl" or knob.type == "path" or not text:
            continue
        wrong = [f for f in check_value(knob, text, version) if f.code == "nccl.invalid_value"]
        if wrong:
            return [
                Finding(
                    code="nccl.invalid_value",
                    line=reading.line(f"var:{name}"),
                    evidence=f"{name}={printable(text, 60)}: {wrong[0].message}",
                    next=wrong[0].next,
                )
            ]
    return []


def _against(
    reading: Reading, profile: Mapping[str, str], intended: Mapping[str, str]
) -> list[Finding]:
    missing = sorted(set(profile) - set(reading.signs["names"]))
    differs = sorted(
        n for n, v in intended.items() if n in profile and v.strip("\r ") != profile[n]
    )
    if len(missing) == len(profile):
        return [
            Finding(
                code="env.profile_absent",
                evidence=f"the file sets none of {', '.join(missing)}",
                next=NEXT_ABSENT,
            )
        ]
    found = []
    if differs:
        found.append(
            Finding(
                code="env.value_differs",
                line=reading.line(f"var:{differs[0]}"),
                evidence=f"{', '.join(differs)} are not as in the profile",
                next="emit the file again: `collbench profile emit PROFILE`",
            )
        )
    if missing:
        found.append(variable_absent(missing))
    return found


def variable_absent(missing: list[str]) -> Finding:
    """Return the finding on variables that alone do not arrive."""
    return Finding(
        code="env.value_absent",
        evidence=f"{', '.join(missing)} does not arrive, other variables of the profile do",
        next="add the names where the others are passed on",
    )


def judge_environ(reading: Reading, given: Given) -> list[Finding]:
    """Return what one process lacks or has differently; a wiped block decides nothing."""
    verdict = reading.facts["verdict"]
    by: dict[str, list[str]] = {}
    for name, said in sorted(verdict.items()):
        by.setdefault(said, []).append(name)
    found = []
    if "unknown" in by:
        found.append(
            Finding(
                code="env.unknown",
                evidence=f"{reading.facts['leading_nul']} NUL bytes in front: a process title was "
                "written over the environment",
                next="`collbench verify PROFILE --pid PID` reads the memory; SPT_NOENV=1 in the "
                "profile keeps titles off",
            )
        )
    if verdict and len(by.get("absent", ())) == len(verdict):
        found.append(
            Finding(
                code="env.profile_absent",
                evidence=f"none of {', '.join(by['absent'])} is in the environment at exec",
                next=NEXT_ABSENT,
            )
        )
    elif "absent" in by:
        found.append(variable_absent(by["absent"]))
    if "differs" in by:
        entries = reading.facts["entries"]
        said = [f"{name}={printable(entries[name], 60)}" for name in by["differs"]]
        found.append(
            Finding(
                code="env.value_differs",
                evidence="; ".join(said) + ", not as in the profile",
                next="find who sets it: the shell, the image, a wrapper script",
            )
        )
    kept = [
        name
        for name in by.get("differs", ())
        if reading.facts["entries"][name].strip("\"'") == (given.profile or {}).get(name)
    ]
    if kept:
        found.append(quoted(kept, None))
    return found


def quoted(names: list[str], line: int | None) -> Finding:
    """Return the finding on values that arrive together with their quotes."""
    return Finding(
        code="env.quotes_kept",
        line=line,
        evidence=f"{', '.join(names)} arrives together with its quotes",
        next=ADVICE["env.quotes_kept"],
    )
