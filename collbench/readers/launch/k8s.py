"""Kubernetes manifests: ``env``, ``envFrom``, and the ConfigMaps they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from collbench.readers.env_files import Refused, read_with
from collbench.readers.launch import Delivery, Env, Var, find
from collbench.readers.launch.docker import entrypoint as image_entrypoint
from collbench.readers.launch.docker import from_values, image_env, run_entrypoint
from collbench.readers.launch.yaml_file import line_of, listed, load, mapping, text_of
from collbench.readers.text import Section

_REFERENCE = re.compile(r"\$(\$?)\(([A-Za-z_][\w.-]*)\)")
_FROM_FILE = re.compile(
    r"create\s+(?:configmap|cm|secret\s+generic)\s+(\S+)(?=[^\n]*--from-env-file[= ](\S+))"
)


def is_manifest(section: Section) -> bool:
    """Return whether a section is a manifest."""
    return all(
        re.search(rf"^{key}:", section.text, re.MULTILINE) is not None
        for key in ("apiVersion", "kind")
    )


def k8s_delivery(manifests: Sequence[Section], sections: Sequence[Section]) -> Delivery:
    """Return what the server's container gets.

    Raises:
        UnreadableError: a manifest is no YAML.
    """
    maps: dict[str, Env] = _maps_from_files(sections)
    workloads: list[tuple[dict[str, Any], Any, Section]] = []
    for section in manifests:
        for data, node in load(section):
            for item, at in _items(mapping(data), node):
                if item.get("kind") in ("ConfigMap", "Secret"):
                    name = str(mapping(item.get("metadata")).get("name"))
                    stored = {**mapping(item.get("data")), **mapping(item.get("stringData"))}
                    maps[name] = {
                        key: Var(
                            text_of(value) if item.get("kind") == "ConfigMap" else None,
                            "file",
                            line_of(at, ["data", key], section.start),
                        )
                        for key, value in stored.items()
                    }
                elif _containers(item):
                    workloads.append((dict(item), at, section))
    found = Delivery("k8s")
    if not workloads:
        return found
    item, node, section = max(workloads, key=lambda w: "nvidia.com/gpu" in str(w[0]))
    found.service = text_of(mapping(item.get("metadata")).get("name"))
    container, path = max(_containers(item), key=lambda c: "nvidia.com/gpu" in str(c[0]))
    found.line = line_of(node, [*path, "env"], section.start)
    env: Env = {}
    for source in listed(container.get("envFrom")):
        prefix = str(mapping(source).get("prefix") or "")
        for kind in ("configMapRef", "secretRef"):
            target = mapping(mapping(source).get(kind)).get("name")
            if target is None:
                continue
            if str(target) not in maps:
                found.unseen.append(str(target))
            env |= {prefix + key: var for key, var in maps.get(str(target), {}).items()}
    for index, entry in enumerate(listed(container.get("env"))):
        line = line_of(node, [*path, "env", index], section.start)
        env |= _entry(mapping(entry), env, maps, found, line)
    words = [str(word) for key in ("command", "args") for word in listed(container.get(key))]
    found.arguments = words
    entry_words = [] if container.get("command") else image_entrypoint(sections)
    found.env = run_entrypoint([*entry_words, *words], image_env(sections) | env, sections)
    return found


def _entry(
    entry: Mapping[str, Any], env: Env, maps: Mapping[str, Env], found: Delivery, line: int | None
) -> Env:
    name = str(entry.get("name"))
    source = mapping(entry.get("valueFrom"))
    if not source:
        text = text_of(entry.get("value")) or ""

        def value(match: re.Match[str]) -> str:
            held = env.get(match[2])
            return match[0][1:] if match[1] else (held.value or "") if held else match[0]

        return {name: Var(_REFERENCE.sub(value, text), "service", line)}
    for kind in ("configMapKeyRef", "secretKeyRef"):
        reference = mapping(source.get(kind))
        if reference:
            held = maps.get(str(reference.get("name")), {}).get(str(reference.get("key")))
            if held is None and str(reference.get("name")) not in maps:
                found.unseen.append(str(reference.get("name")))
                return {name: Var(None, "service", line)}
            return {name: held} if held else {}
    return {name: Var(None, "service", line)}


def _items(data: Mapping[str, Any], node: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """Yield a manifest, or the items of a List."""
    items = data.get("items")
    if not isinstance(items, list):
        yield data, node
        return
    listed = next((v for k, v in node.value if k.value == "items"), None)
    for item, at in zip(items, listed.value if listed else (), strict=False):
        yield mapping(item), at


def _containers(
    item: Mapping[str, Any], path: tuple[str | int, ...] = (), depth: int = 0
) -> list[tuple[dict[str, Any], tuple[str | int, ...]]]:
    """Return the containers of a workload of any kind, with their paths."""
    found: list[tuple[dict[str, Any], tuple[str | int, ...]]] = []
    if depth > 8:
        return found
    for key, value in item.items():
        if key == "containers" and isinstance(value, list):
            found += [
                (dict(mapping(entry)), (*path, key, index))
                for index, entry in enumerate(value)
                if isinstance(entry, Mapping)
            ]
        elif isinstance(value, Mapping):
            found += _containers(mapping(value), (*path, key), depth + 1)
    return found


def _maps_from_files(sections: Sequence[Section]) -> dict[str, Env]:
    """Return ConfigMaps that a script makes with ``kubectl create ... --from-env-file``."""
    found: dict[str, Env] = {}
    for section in sections:
        joined = section.text.replace("\\\n", " ")
        for match in _FROM_FILE.finditer(joined):
            file = find(sections, match[2])
            read = read_with("kubectl", file.text) if file else None
            if file and read is not None and not isinstance(read, Refused):
                found[match[1]] = from_values(read, file)
    return found
