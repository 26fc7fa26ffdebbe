"""What is wrong with an env file or a profile, found without a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from collbench.knobs import Version, parse_version
from collbench.knobs.fault import Fault
from collbench.knobs.rules import HAZARDS, check_settings
from collbench.knobs.servers import server_writes
from collbench.profiles import MARKERS
from collbench.readers.env_faults import faults as line_faults
from collbench.readers.env_faults import named_lines

_LINE_FAULTS = {
    "export": ("env.not_portable", "'export' is an error for docker and kubectl", "remove it"),
    "quotes": (
        "env.quotes_kept",
        "docker, kubectl and nccl.conf keep quotes as part of the value",
        "write the value without quotes",
    ),
    "comment": (
        "env.not_portable",
        "a comment behind a value is part of it for docker, systemd and nccl.conf",
        "give the comment a line of its own",
    ),
    "dollar": ("env.not_portable", "'$' is expanded by shells and compose only", "write it out"),
    "trailing_blank": (
        "env.not_portable",
        "docker and nccl.conf keep blanks at the end",
        "remove the blanks",
    ),
    "leading_blank": (
        "env.not_portable",
        "blanks around a name or in front of a value are read differently",
        "remove the blanks",
    ),
    "crlf": (
        "env.crlf",
        "the carriage return ends up in the value for shells and NCCL before 2.30",
        "save the file with Unix line ends: sed -i 's/\\r$//' FILE",
    ),
    "duplicate": (
        "env.not_portable",
        "given twice: docker leaves open which counts, nccl.conf takes the first, others the last",
        "keep one",
    ),
    "semicolon": (
        "env.sourced_semicolon",
        "a shell that sources the file cuts the value at ';'",
        "collbench profile emit FILE --target docker   (or systemd, k8s, shell, nccl-conf)",
    ),
    "bom": ("env.not_portable", "a byte order mark belongs to the first name", "save without it"),
    "no_value": (
        "env.not_portable",
        "a name without '=' takes the caller's value in docker, nothing elsewhere",
        "give a value, or remove the line",
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One fault of a file."""

    code: str
    line: int | None
    name: str
    evidence: str
    next: str
    level: str
    """invalid, hazard or notice."""

    def plain(self) -> dict[str, Any]:
        """Return it as findings stand in documents."""
        return {
            "code": self.code,
            "line": self.line,
            "confidence": "high",
            "evidence": f"{self.name}: {self.evidence}" if self.name else self.evidence,
            "next": self.next,
            "level": self.level,
        }


class ConfLine(Protocol):
    """One line of a conf file, as `collbench.live.conf_files` gives it."""

    @property
    def value(self) -> str:
        """The value."""
        ...

    @property
    def path(self) -> str:
        """The file."""
        ...

    @property
    def line(self) -> int:
        """Its line."""
        ...


def lint_text(
    text: str,
    *,
    version: Version = (),
    like: str = "none",
    conf: Mapping[str, ConfLine] | None = None,
    pinned: Iterable[str] = (),
    hazards: Iterable[str] = (),
) -> list[Finding]:
    """Return the faults of an env file, in the order of its lines.

    Args:
        text: The file.
        version: Of the NCCL that will read the values; empty: current.
        like: Server that will be started with it.
        conf: What conf files of this machine set.
        pinned: Names that are pinned on purpose, even at their default.
        hazards: Hazards that were allowed when the profile was made.
    """
    lines = named_lines(text)
    found = [_of_line(text, number, fault) for number, fault in line_faults(text)]
    found += _other_lines(text, {number for number, _ in line_faults(text)} | set(lines.values()))
    values = _meant(text)
    allowed = {HAZARDS[hazard][0] for hazard in hazards if hazard in HAZARDS}
    for fault in check_settings({n: v for n, v in values.items() if n not in MARKERS}, version):
        if fault.code in allowed or (fault.code == "env.equals_default" and fault.name in pinned):
            continue
        found.append(_of_setting(fault, lines))
    found += _server(values, like, lines)
    found += _conf(values, conf or {}, lines)
    return sorted(found, key=lambda f: (f.line is None, f.line or 0))


def lint_values(values: Mapping[str, str], **options: Any) -> list[Finding]:
    """Return the faults of settings that no env file holds; see `lint_text`."""
    text = "".join(f"{name}={value}\n" for name, value in values.items())
    return lint_text(text, **options)


def version_of(text: str | None, *, where: str = "--nccl-version") -> Version:
    """Return a version given by a user.

    Raises:
        CollbenchError: it is none.
    """
    if text is None:
        return ()
    from collbench.errors import CollbenchError

    version = parse_version(text)
    if len(version) < 2:
        raise CollbenchError(f"{where}: {text!r:.40} is not a version", fix="for example 2.28.9")
    return version


def _meant(text: str) -> dict[str, str]:
    """Return name -> value as the writer meant it; of a name given twice the last."""
    values: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.strip().removeprefix("\ufeff").removeprefix("export ").lstrip()
        name, equals, value = line.partition("=")
        if not equals or not (name.isidentifier() and name.isascii()):
            continue
        value = value.strip()
        if value[:1] in ("'", '"') and value.find(value[0], 1) > 0:
            value = value[1 : value.find(value[0], 1)]
        else:
            value = value.partition(" #")[0].rstrip()
        values[name] = value
    return values


def _of_line(text: str, number: int, fault: str) -> Finding:
    code, evidence, following = _LINE_FAULTS[fault]
    line = text.split("\n")[number - 1]
    name = line.lstrip("\ufeff \t").removeprefix("export").strip().partition("=")[0].strip()
    return Finding(
        code=code, line=number, name=name[:80], evidence=evidence, next=following, level="invalid"
    )


def _other_lines(text: str, known: set[int]) -> list[Finding]:
    """Return lines that are neither assignments, comments nor empty."""
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip()
        if bare and not bare.startswith("#") and number not in known and "=" not in bare:
            found.append(
                Finding(
                    code="env.not_portable",
                    line=number,
                    name="",
                    evidence="neither NAME=VALUE nor a comment: a shell runs it as a command",
                    next="remove the line",
                    level="invalid",
                )
            )
        elif bare and not bare.startswith("#") and number not in known:
            name = bare.partition("=")[0]
            if not (name.isidentifier() and name.isascii()):
                found.append(
                    Finding(
                        code="env.not_portable",
                        line=number,
                        name="",
                        evidence="the text in front of '=' is not the name of a variable",
                        next="write NAME=VALUE",
                        level="invalid",
                    )
                )
        if bare.startswith("#") and line.rstrip("\r").endswith("\\"):
            found.append(
                Finding(
                    code="env.not_portable",
                    line=number,
                    name="",
                    evidence="a comment that ends in a backslash swallows the next line (systemd "
                    "before 254)",
                    next="remove the backslash",
                    level="invalid",
                )
            )
    return found


def _of_setting(fault: Fault, lines: Mapping[str, int]) -> Finding:
    return Finding(
        code=fault.code,
        line=lines.get(fault.name),
        name=fault.name,
        evidence=fault.message,
        next=fault.next,
        level=fault.level,
    )


def _server(values: Mapping[str, str], like: str, lines: Mapping[str, int]) -> list[Finding]:
    """Return values that the server replaces whatever its options."""
    found = []
    for write in server_writes(like).values():
        if write.when != "overwrites" or values.get(write.name, write.value) == write.value:
            continue
        found.append(
            Finding(
                code="env.overridden_by_server",
                line=lines.get(write.name),
                name=write.name,
                evidence=f"{like} {write.version} overwrites it with {write.value}",
                next="take the line out: the server's own value is part of the baseline",
                level="invalid",
            )
        )
    return found


def _conf(
    values: Mapping[str, str], conf: Mapping[str, ConfLine], lines: Mapping[str, int]
) -> list[Finding]:
    found = []
    for name, entry in conf.items():
        if not name.startswith("NCCL_"):
            continue
        wins = name in values
        if wins and values[name] == entry.value:
            continue
        text = (
            f"{entry.path}:{entry.line} says {entry.value}; the environment wins, but only where "
            "the file arrives"
            if wins
            else f"{entry.path}:{entry.line} adds {name}={entry.value}, which no environment shows"
        )
        found.append(
            Finding(
                code="env.shadowed_by_conf",
                line=lines.get(name),
                name=name if wins else "",
                evidence=text,
                next="take the line out of the conf file",
                level="notice",
            )
        )
    return found
