"""systemd units with their drop-ins: what the service's process gets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from collbench.readers.env_files import Refused, read_with
from collbench.readers.launch import Delivery, Env, Var, find
from collbench.readers.launch.docker import from_values, is_restart, is_run, run_delivery
from collbench.readers.launch.walk import Started, Walk
from collbench.readers.text import MAX_LINE_BYTES, Section

_PATH_LINE = re.compile(r"# (/\S+\.(?:service|conf|socket|timer))\s*$")
_UNIT = re.compile(r"[\w@.:\\-]+\.service")


@dataclass(slots=True)
class Unit:
    """The directives of [Service] that matter, after all drop-ins and resets."""

    environment: list[tuple[str, int]] = field(default_factory=list)
    files: list[tuple[str, int]] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    unset: list[str] = field(default_factory=list)
    start: list[tuple[str, int]] = field(default_factory=list)


def is_unit(section: Section) -> bool:
    """Return whether a section is a unit or a drop-in."""
    return re.search(r"^\[(?:Service|Unit)\]\s*$", section.text, re.MULTILINE) is not None


def unit_delivery(units: Sequence[Section], sections: Sequence[Section]) -> Delivery:
    """Return what the unit's main process gets, drop-ins applied in the order of their names."""
    parts = [part for section in units for part in _split_cat(section)]
    main = [part for part in parts if not part.name.endswith(".conf")]
    drop_ins = sorted((p for p in parts if p.name.endswith(".conf")), key=lambda p: p.base)
    unit = Unit()
    for part in main + drop_ins:
        _read(part, unit)
    found = Delivery("systemd", _name(main + drop_ins), environment_files=[])
    env: Env = {}
    for text, line in unit.environment:
        for word in _words(text):
            name, equals, value = word.partition("=")
            if equals:
                env[name] = Var(value.replace("%%", "%"), "unit", line)
    found.environment_files = [path.removeprefix("-") for path, _ in unit.files]
    for path, _ in unit.files:
        section = find(sections, path)
        if section is None:
            found.unseen.append(path.removeprefix("-"))
            continue
        found.files.append(section)
        read = read_with("systemd", section.text)
        if not isinstance(read, Refused):
            env |= from_values(read, section)
    for name in unit.unset:
        env.pop(name.partition("=")[0], None)
    found.env, found.asked = env, set(env)
    _follow_start(found, unit, env, sections)
    return found


def _follow_start(found: Delivery, unit: Unit, env: Env, sections: Sequence[Section]) -> None:
    """Go on through ExecStart: a script, env(1), or docker."""
    if not unit.start:
        return
    text, line = unit.start[-1]
    found.line = line
    walk = Walk(sections).give(env)
    walk.run(Section("", text.lstrip("-@:+!"), line))
    for started in list(walk.started):
        target = find(sections, started.words[0])
        if target is not None:
            walk.started += Walk(sections).give(started.env).run(target).started
    if not walk.started:
        return
    last: Started = walk.started[-1]
    found.arguments = last.words
    found.lost_at = last.lost_at
    if is_run(last.words):
        inner = run_delivery(last, sections)
        found.env, found.arguments = inner.env, inner.arguments
        found.unseen += inner.unseen
        found.files += inner.files
        found.lost_at = inner.lost_at
    elif is_restart(last.words):
        found.env = {}
        found.lost_at = f"{found.service or 'unit'}: {' '.join(last.words[:2])}"
        found.lost_line = line
    else:
        found.env = last.env


def _split_cat(section: Section) -> list[Section]:
    """Split what ``systemctl cat`` prints at the paths that stand before each file."""
    lines = section.text.split("\n")
    starts = [i for i, line in enumerate(lines) if _PATH_LINE.match(line)]
    if not starts:
        return [section]
    ends = [*starts[1:], len(lines)]
    found = []
    if any(line.strip() for line in lines[: starts[0]]):
        found.append(Section(section.name, "\n".join(lines[: starts[0]]), section.start))
    for start, end in zip(starts, ends, strict=True):
        match = _PATH_LINE.match(lines[start])
        name = match[1] if match else section.name
        found.append(Section(name, "\n".join(lines[start:end]), section.start + start))
    return found


def _read(part: Section, unit: Unit) -> None:
    inside = False
    held, held_line = "", part.start
    for number, raw in enumerate(part.text.split("\n"), part.start):
        text = raw.rstrip("\r").strip()
        if text.startswith(("#", ";")) or (not text and not held):
            continue
        if not held:
            held_line = number
        if text.endswith("\\"):
            held += text[:-1] + " "
            continue
        text, held = held + text, ""
        if text.startswith("["):
            inside = text == "[Service]"
            continue
        key, equals, value = text.partition("=")
        if inside and equals:
            _directive(unit, key.strip(), value.strip(), held_line)


def _directive(unit: Unit, key: str, value: str, line: int) -> None:
    """Take one directive; an empty value resets the list so far."""
    lists: dict[str, list[tuple[str, int]]] = {
        "Environment": unit.environment,
        "EnvironmentFile": unit.files,
        "ExecStart": unit.start,
    }
    names = {"PassEnvironment": unit.passed, "UnsetEnvironment": unit.unset}
    if key in lists:
        lists[key].append((value, line)) if value else lists[key].clear()
    elif key in names:
        names[key].extend(value.split()) if value else names[key].clear()


def _words(text: str) -> list[str]:
    """Split a value as systemd does: blanks, with quotes and backslashes."""
    if len(text) > MAX_LINE_BYTES:
        return []
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return []


def _name(parts: Sequence[Section]) -> str | None:
    for part in parts:
        for word in (part.base, *reversed(part.name.split("/")[:-1])):
            match = _UNIT.match(word)
            if match:
                return match[0]
    return None
