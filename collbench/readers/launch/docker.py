"""docker run, docker inspect, and what an image brings: ENV lines and its entrypoint."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from collbench.readers import UnreadableError
from collbench.readers.env_files import Refused, read_with
from collbench.readers.launch import Delivery, Env, Var, find
from collbench.readers.launch.walk import Started, Walk
from collbench.readers.launch.wrappers import RUNTIMES
from collbench.readers.shell import ShellError, assignment, commands
from collbench.readers.text import Section

_FLAGS = frozenset(
    ("--rm", "--privileged", "--init", "--read-only", "--detach", "--interactive", "--tty",
     "--publish-all", "--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--quiet",
     "--disable-content-trust", "--use-api-socket")
)  # fmt: skip
_SHORT_FLAGS = frozenset("ditqP")


def is_run(words: Sequence[str]) -> bool:
    """Return whether a command creates a container."""
    if not words or words[0].rsplit("/", 1)[-1] not in RUNTIMES:
        return False
    rest = [word for word in words[1:] if not word.startswith("-")]
    return rest[:1] in (["run"], ["create"]) or rest[:2] in (
        ["container", "run"],
        ["container", "create"],
    )


def is_restart(words: Sequence[str]) -> bool:
    """Return whether a command starts a container that exists, with the environment it has."""
    if not words or words[0].rsplit("/", 1)[-1] not in RUNTIMES:
        return False
    return any(word in ("restart", "start") for word in words[1:3])


def run_delivery(started: Started, sections: Sequence[Section]) -> Delivery:
    """Return what ``docker run`` passes to the server in the container."""
    at = next(i for i, word in enumerate(started.words) if word in ("run", "create")) + 1
    options, rest = _options(started.words[at:])
    found = Delivery("docker_run", line=started.line, lost_at=started.lost_at)
    files: Env = {}
    direct: Env = {}
    for name, value in options:
        if name == "--name":
            found.service = value
        elif name == "--env-file":
            files |= _env_file(value, sections, found)
        elif name in ("-e", "--env"):
            key, equals, text = value.partition("=")
            if equals:
                direct[key] = Var(text, "script", started.line)
            elif key in started.env:
                direct[key] = started.env[key]
    image, command = (rest[0], rest[1:]) if rest else ("", [])
    env = image_env(sections) | files | direct
    found.arguments = command
    override = next((value for name, value in options if name == "--entrypoint"), None)
    entry = [override] if override else entrypoint(sections)
    found.env = run_entrypoint([*entry, *command], env, sections)
    del image
    return found


def _env_file(path: str, sections: Sequence[Section], found: Delivery) -> Env:
    section = find(sections, path)
    if section is None:
        found.unseen.append(path)
        return {}
    found.files.append(section)
    read = read_with("docker", section.text)
    if isinstance(read, Refused):
        return {}
    return from_values(read, section)


def from_values(values: dict[str, str | None], section: Section) -> Env:
    """Return the values that a reader made of a file as variables with their lines."""
    lines: dict[str, int] = {}
    for number, line in enumerate(section.text.split("\n"), section.start):
        name = line.partition("=")[0].strip().removeprefix("export ").strip()
        lines.setdefault(name, number)
    # A bare name is taken from the caller, who is not known here.
    return {
        name: Var(value, "file", lines.get(name))
        for name, value in values.items()
        if value is not None
    }


def _options(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return (option, value) pairs, and image and command behind them."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and len(words[at]) > 1:
        word = words[at]
        at += 1
        name, equals, value = word.partition("=")
        if name in _FLAGS or (not word.startswith("--") and set(word[1:]) <= _SHORT_FLAGS):
            continue
        if not word.startswith("--") and len(word) > 2:
            # -eNAME=VALUE, or -de NAME=VALUE
            letters = word[1:]
            first = next((i for i, c in enumerate(letters) if c not in _SHORT_FLAGS), 0)
            name, value, equals = f"-{letters[first]}", letters[first + 1 :].lstrip("="), "="
            if not value:
                equals = ""
        if not equals and at < len(words):
            value = words[at]
            at += 1
        found.append((name, value))
    return found, words[at:]


def image_env(sections: Sequence[Section]) -> Env:
    """Return the ENV lines of the Dockerfile among the sections."""
    found: Env = {}
    for section in sections:
        if not is_dockerfile(section):
            continue
        for number, text in _instructions(section):
            match = re.match(r"ENV\s+(.+)$", text, re.IGNORECASE | re.DOTALL)
            if not match:
                continue
            pairs = _env_pairs(match[1])
            found |= {name: Var(value, "image", number) for name, value in pairs.items()}
    return found


def _env_pairs(text: str) -> dict[str, str | None]:
    try:
        words = commands(text)[0].words if commands(text) else []
    except ShellError:
        return {}
    pairs = [assignment(word) for word in words]
    if words and pairs[0] is None:
        # The old form: ENV NAME value to the end of the line.
        name, _, value = text.strip().partition(" ")
        return {name: value.strip()}
    return {pair[0]: pair[1].expand(lambda _: None) for pair in pairs if pair is not None}


def entrypoint(sections: Sequence[Section]) -> list[str]:
    """Return the words of the Dockerfile's last ENTRYPOINT, with CMD behind it."""
    entry: list[str] = []
    command: list[str] = []
    for section in sections:
        for _, text in _instructions(section) if is_dockerfile(section) else ():
            match = re.match(r"(ENTRYPOINT|CMD)\s+(.+)$", text, re.IGNORECASE | re.DOTALL)
            if not match:
                continue
            words = _exec_form(match[2])
            if match[1].upper() == "ENTRYPOINT":
                entry = words
            else:
                command = words
    return entry or command


def _exec_form(text: str) -> list[str]:
    try:
        words = json.loads(text)
        if isinstance(words, list):
            return [str(word) for word in words]
    except (ValueError, RecursionError):
        pass
    return ["/bin/sh", "-c", text.strip()]


def run_entrypoint(words: list[str], env: Env, sections: Sequence[Section]) -> Env:
    """Return the environment of what an entrypoint starts in the end."""
    scripts = [section for word in words[:3] if (section := find(sections, word)) is not None]
    inline = words[2] if len(words) > 2 and words[1] in ("-c", "-lc", "-ec") else None
    if inline is not None and not scripts:
        scripts = [Section("", inline, 1)]
    if not scripts:
        return env
    walk = Walk(sections, "entrypoint").give(env).run(scripts[0])
    return walk.started[-1].env if walk.started else walk.env()


def is_dockerfile(section: Section) -> bool:
    """Return whether a section is one: by its name, or by its first instruction."""
    if re.match(r"(?:.*\.)?(?:Dockerfile|Containerfile)", section.base, re.IGNORECASE):
        return True
    first = next((t for t in section.text.split("\n") if t.strip() and t[0] != "#"), "")
    return re.match(r"(?:FROM|ARG) \S+", first) is not None


def _instructions(section: Section) -> list[tuple[int, str]]:
    """Return (line, text) of the instructions of a Dockerfile, continuations joined."""
    found: list[tuple[int, str]] = []
    held, start = "", section.start
    for number, line in enumerate(section.text.split("\n"), section.start):
        text = line.rstrip("\r")
        if text.lstrip().startswith("#"):
            continue
        if not held:
            start = number
        if text.rstrip().endswith("\\"):
            held += text.rstrip()[:-1] + " "
            continue
        if (held + text).strip():
            found.append((start, (held + text).strip()))
        held = ""
    return found


def inspect_delivery(section: Section) -> Delivery:
    """Return the environment that ``docker inspect`` shows of a container.

    Raises:
        UnreadableError: it is no such document.
    """
    try:
        plain: Any = json.loads(section.text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"docker inspect: no JSON: {str(error)[:60]}") from error
    item = plain[0] if isinstance(plain, list) and plain else plain
    config = item.get("Config") if isinstance(item, dict) else None
    listed = config.get("Env") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(listed, list | type(None)):
        raise UnreadableError("docker inspect: no Config.Env")
    name = item.get("Name")
    found = Delivery("docker_inspect", name.lstrip("/") if isinstance(name, str) else None)
    texts = section.text.split("\n")
    for entry in listed or []:
        key, equals, value = str(entry).partition("=")
        if equals:
            quoted = json.dumps(f"{key}=")[:-1]
            line = next((i for i, t in enumerate(texts, section.start) if quoted in t), None)
            found.env[key] = Var(value, "service", line)
    for part in ("Entrypoint", "Cmd"):
        words = config.get(part)
        found.arguments += [str(word) for word in words] if isinstance(words, list) else []
    found.line = next((i for i, t in enumerate(texts, section.start) if '"Env"' in t), None)
    return found
