"""Compose: what a service passes to its container; `.env` only fills in the YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from collbench.readers.env_files import Refused, read_with
from collbench.readers.launch import Delivery, Env, Var, find
from collbench.readers.launch.docker import entrypoint as image_entrypoint
from collbench.readers.launch.docker import from_values, image_env, run_entrypoint
from collbench.readers.launch.yaml_file import line_of, load, mapping, text_of
from collbench.readers.shell import ShellError, commands
from collbench.readers.text import Section

_VARIABLE = re.compile(r"\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-+?])([^}]*))?\})")
_SERVER = re.compile(
    r"sglang|vllm|trtllm|tensorrt|lmdeploy|llama|engine|inference|--tp\b|tensor-par"
)


def compose_delivery(
    files: Sequence[Section],
    sections: Sequence[Section],
    shell: Env,
    fillers: Sequence[str] = (),
) -> Delivery:
    """Return what the server's service passes on.

    Args:
        files: The compose files; a later one adds to and overrides an earlier one.
        sections: All files of the snippet, for ``env_file``, ``extends`` and the image.
        shell: Environment of the shell that calls compose.
        fillers: Files of ``compose --env-file``, which fill in the YAML instead of `.env`.

    Raises:
        UnreadableError: it is no YAML.
    """
    section = files[0]
    documents = load(section)
    data, node = documents[0] if documents else ({}, None)
    services: dict[str, Any] = dict(mapping(mapping(data).get("services")))
    for other in files[1:]:
        for data, _ in load(other)[:1]:
            for key, value in mapping(mapping(data).get("services")).items():
                services[key] = _merged(mapping(services.get(key)), mapping(value))
    name = _choose(services)
    found = Delivery("compose", name)
    if name is None:
        return found
    known = _interpolation(sections, shell, fillers)
    service = _extended(name, services, sections, depth=0)
    found.line = line_of(node, ["services", name], section.start)
    listed_files: Env = {}
    for path, raw in _env_files(service.get("env_file")):
        listed_files |= _read(_fill(path, known) or path, sections, found, raw=raw)
    listed = service.get("environment")
    direct: Env = {}
    for index, (key, value) in enumerate(_pairs(listed)):
        where = ["services", name, "environment", index if isinstance(listed, list) else key]
        line = line_of(node, where, section.start) if node is not None else None
        if value is None:
            found.asked.add(key)
            if key in shell:
                direct[key] = shell[key]
            elif key in known:
                direct[key] = Var(known[key], "service", line)
        else:
            direct[key] = Var(_fill(value, known), "service", line)
    env = image_env(sections) | listed_files | direct
    entry = _words(service.get("entrypoint")) or image_entrypoint(sections)
    found.arguments = _words(service.get("command"))
    found.env = run_entrypoint([*entry, *found.arguments], env, sections)
    return found


def _choose(services: Mapping[str, Any]) -> str | None:
    """Return the service that runs the model: the one that looks most like it."""

    def likeness(name: str) -> int:
        service = mapping(services[name])
        words = f"{name} {service.get('image')} {service.get('command')}"
        gpus = "nvidia" in str(service.get("deploy")) or "gpus" in service or "runtime" in service
        return 2 * bool(_SERVER.search(words)) + 3 * gpus

    return max(services, key=likeness) if services else None


def _extended(
    name: str, services: Mapping[str, Any], sections: Sequence[Section], depth: int
) -> dict[str, Any]:
    """Return a service with what it extends merged in; its own entries win."""
    service = dict(mapping(services.get(name)))
    extends = service.pop("extends", None)
    if extends is None or depth > 8:
        return service
    base_name = extends if isinstance(extends, str) else mapping(extends).get("service")
    file = mapping(extends).get("file") if not isinstance(extends, str) else None
    others = services
    if file:
        other = find(sections, str(file))
        documents = load(other) if other is not None else []
        others = mapping(mapping(documents[0][0]).get("services")) if documents else {}
    return _merged(_extended(str(base_name), others, sections, depth + 1), service)


def _merged(base: Mapping[str, Any], service: Mapping[str, Any]) -> dict[str, Any]:
    """Return a service over the one it extends or overrides: lists of variables are joined."""
    merged = {**base, **service}
    merged["environment"] = dict(_pairs(base.get("environment"))) | dict(
        _pairs(service.get("environment"))
    )
    merged["env_file"] = _listed(base.get("env_file")) + _listed(service.get("env_file"))
    return merged


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _env_files(value: Any) -> list[tuple[str, bool]]:
    found = []
    for item in _listed(value):
        if isinstance(item, Mapping):
            found.append((str(item.get("path", "")), item.get("format") == "raw"))
        else:
            found.append((str(item), False))
    return found


def _read(path: str, sections: Sequence[Section], found: Delivery, *, raw: bool) -> Env:
    section = find(sections, path)
    if section is None:
        found.unseen.append(path)
        return {}
    found.files.append(section)
    read = read_with("docker" if raw else "compose", section.text)
    return {} if isinstance(read, Refused) else from_values(read, section)


def _pairs(value: Any) -> list[tuple[str, str | None]]:
    """Return name and value of ``environment``, as a list or as a map; None: from the shell."""
    if isinstance(value, Mapping):
        return [(str(name), text_of(item)) for name, item in value.items()]
    pairs: list[tuple[str, str | None]] = []
    for item in value if isinstance(value, list) else ():
        name, equals, text = str(item).partition("=")
        pairs.append((name, text if equals else None))
    return pairs


def _interpolation(
    sections: Sequence[Section], shell: Env, fillers: Sequence[str]
) -> dict[str, str | None]:
    """Return what fills in ``${X}`` in the YAML: the shell first, then `.env` or its stand-ins."""
    known: dict[str, str | None] = {}
    for path in fillers or (".env",):
        section = find(sections, path)
        read = read_with("compose", section.text) if section else {}
        known |= {} if isinstance(read, Refused) else read
    return known | {name: var.value for name, var in shell.items()}


def _fill(text: str, known: Mapping[str, str | None]) -> str | None:
    """Return text with its variables filled in; None where one of them is not known."""
    unknown = False

    def value(match: re.Match[str]) -> str:
        nonlocal unknown
        if match[1]:
            return "$"
        name, operator, operand = match[2] or match[3], match[4] or "", match[5] or ""
        held = known.get(name)
        if name in known and held is None:
            unknown = True
        if operator.endswith("+"):
            return operand if held else ""
        if held or (held == "" and operator in ("", "-")):
            return held
        return operand if operator.endswith("-") else ""

    filled = _VARIABLE.sub(value, text)
    return None if unknown else filled


def _words(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(item) for item in value]
    if not isinstance(value, str):
        return []
    try:
        parsed = commands(value)
    except ShellError:
        return value.split()
    return [word.plain() for command in parsed for word in command.words]
