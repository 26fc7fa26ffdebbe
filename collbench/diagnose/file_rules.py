"""Environment files, and copies of /proc/PID/environ."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from collbench.diagnose.env_rules import NEXT_ABSENT
from collbench.diagnose.setting_rules import judge_settings
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
    findings = _judge_one(reading, given)
    for name, other in reading.signs.get("others", ()):
        # Whether a file beside the first is to hold the profile, nobody said.
        found = _judge_one(other, dataclasses.replace(given, profile=None))
        findings += [dataclasses.replace(finding, source=printable(name, 80)) for finding in found]
    return findings


def _judge_one(reading: Reading, given: Given) -> list[Finding]:
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
    if "env.not_portable" not in found:
        findings += _read_differently(reading)
    intended = {
        name: value
        for reader in ("systemd", "sh", "compose")
        for name, value in _values(reading.facts["values"], reader).items()
        if value is not None
    }
    bare = {n: unquoted(v).strip() or v.strip("\"' \r") for n, v in intended.items()}
    findings += judge_settings(bare, given, lambda name: reading.line(f"var:{name}"))
    if given.profile is not None:
        findings += _against(reading, given.profile, intended)
    return findings


def _values(values: Mapping[str, Any], reader: str) -> Mapping[str, Any]:
    read = values.get(reader, {})
    return {} if "error" in read and len(read) == 1 else read


def _read_differently(reading: Reading) -> list[Finding]:
    """Find lines without a fault of their own of which readers make different things."""
    values: Mapping[str, Mapping[str, Any]] = reading.facts["values"]
    offset = reading.signs["offset"]
    faulty = {line for line, _ in reading.facts["faults"]}
    refused = [r for r, read in values.items() if "error" in read and len(read) == 1]
    if refused and not faulty:
        said = ", ".join(
            f"{reader} refuses the file: {values[reader]['error']}" for reader in refused
        )
        return [_not_portable(said, None)]
    read = [values[reader] for reader in values if reader not in refused]
    for name, line in reading.signs["names"].items():
        made = [found.get(name) for found in read]
        if line not in faulty and (None in made or len(set(made)) > 1):
            return [_not_portable(f"readers make different things of {name}", line + offset)]
    return []


def _not_portable(evidence: str, line: int | None) -> Finding:
    code = "env.not_portable"
    return Finding(code=code, line=line, evidence=evidence, next=ADVICE[code])


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


def _why_unknown(reading: Reading) -> str:
    leading = reading.facts["leading_nul"]
    if reading.signs["wiped"]:
        front = f"{leading} NUL bytes in front" if leading else "the first piece is no variable"
        return f"{front}: a process title was written over the environment"
    if reading.signs["cut"] is not None:
        return "the copy is cut: its last entry has no end"
    return "NUL bytes between the entries: something was wiped there"


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
                evidence=_why_unknown(reading),
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
    entries = reading.facts["entries"]
    if not reading.signs["wiped"]:
        whole = {n: v for n, v in entries.items() if n != reading.signs["cut"]}
        plain = {n: v for n, v in whole.items() if v[:1] not in ("'", '"') and v[-1:] != "\r"}
        found += judge_settings(plain, given, lambda _: None)
    returned = [n for n in by.get("differs", ()) if entries[n].endswith("\r")]
    if returned:
        found.append(crlf(returned, None))
    kept = [
        name
        for name in by.get("differs", ())
        if reading.facts["entries"][name].strip("\"'") == (given.profile or {}).get(name)
    ]
    if kept:
        found.append(quoted(kept, None))
    return found


def crlf(names: list[str], line: int | None) -> Finding:
    """Return the finding on values that end in a carriage return."""
    return Finding(
        code="env.crlf",
        line=line,
        evidence=f"{', '.join(names)} ends in a carriage return",
        next=ADVICE["env.crlf"],
    )


def quoted(names: list[str], line: int | None) -> Finding:
    """Return the finding on values that arrive together with their quotes."""
    return Finding(
        code="env.quotes_kept",
        line=line,
        evidence=f"{', '.join(names)} arrives together with its quotes",
        next=ADVICE["env.quotes_kept"],
    )
