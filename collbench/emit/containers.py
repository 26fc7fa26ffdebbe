"""Targets that start containers: docker, compose, Kubernetes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from collbench.emit import Snippet
from collbench.knobs import registry

WAIT_S = 600
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Names that YAML 1.1 takes for truth values or nothing."""


def docker(snippet: Snippet) -> str:
    """Return a docker run line, and how to check it."""
    lines = ["docker run -d --gpus all --ipc=host", f"  --name {snippet.service}"]
    if snippet.universal:
        lines.append(f"  --env-file {snippet.env_path}")
    else:
        lines += [f"  -e {shlex.quote(f'{n}={v}')}" for n, v in snippet.values.items()]
    lines += [f"  -v {shlex.quote(f'{path}:{path}:ro')}" for path in mounts(snippet.values)]
    lines.append("  IMAGE COMMAND")
    return "\n".join(
        [
            f"# {snippet.title}",
            "# The environment is fixed when the container is created: docker restart keeps it.",
            f"# After a change: docker rm -f {snippet.service}, and run this again.",
            " \\\n".join(lines),
            "# Guard: fails if the profile is not live in every worker.",
            f"collbench verify {snippet.profile_path} --wait {WAIT_S} \\",
            f"  --pid \"$(docker inspect -f '{{{{.State.Pid}}}}' {snippet.service})\"",
            "",
        ]
    )


def compose(snippet: Snippet) -> str:
    """Return a compose service, with a guard that runs to completion beside it."""
    lines = [
        f"# {snippet.title}",
        "# Merge into your service. A file .env beside compose.yaml only fills in this YAML; it",
        "# does not reach the container. After a change: docker compose up -d --force-recreate",
        "services:",
        f"  {_name(snippet.service)}:",
    ]
    if snippet.universal:
        lines += ["    env_file:", f"      - {snippet.env_path}"]
    else:
        lines.append("    environment:")
        lines += [
            f"      {name}: {_yaml(value.replace('$', '$$'))}"
            for name, value in snippet.values.items()
        ]
    paths = mounts(snippet.values)
    if paths:
        lines.append("    volumes:")
        lines += [f"      - {_yaml(f'{path}:{path}:ro'.replace('$', '$$'))}" for path in paths]
    lines += [
        "  # Guard: fails if the profile is not live in every worker. Others can wait for it with",
        "  # depends_on: {profile-guard: {condition: service_completed_successfully}}",
        "  profile-guard:",
        "    image: IMAGE-WITH-COLLBENCH",
        f'    pid: "service:{snippet.service}"',
        "    cap_add: [SYS_PTRACE]",
        "    depends_on:",
        f"      - {_name(snippet.service)}",
        "    volumes:",
        f"      - {snippet.profile_path}:{snippet.profile_path}:ro",
        f'    command: ["collbench", "verify", "{snippet.profile_path}", "--wait", "{WAIT_S}"]',
        '    restart: "no"',
        "",
    ]
    return "\n".join(lines)


def k8s(snippet: Snippet) -> str:
    """Return a ConfigMap and the parts of a Deployment that use it."""
    name = f"collbench-{snippet.profile_id or 'profile'}"
    ranks = f" --ranks {snippet.nranks}" if snippet.nranks else ""
    data = [f"  {key}: {_yaml(value)}" for key, value in snippet.values.items()]
    lines = [
        f"# {snippet.title}",
        "# Running pods do not see a changed ConfigMap. This one is immutable and named after the",
        "# profile: a new profile is a new name, and that rolls the pods. To restart by hand:",
        f"#   kubectl rollout restart deployment/{snippet.service}",
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata:",
        f"  name: {name}",
        "immutable: true",
        "data:",
        *data,
        "---",
        "# Merge into your Deployment.",
        "apiVersion: apps/v1",
        "kind: Deployment",
        "metadata:",
        f"  name: {_name(snippet.service)}",
        "spec:",
        "  selector:",
        "    matchLabels:",
        f"      app: {_name(snippet.service)}",
        "  template:",
        "    metadata:",
        "      labels:",
        f"        app: {_name(snippet.service)}",
        "    spec:",
        "      shareProcessNamespace: true",
        "      containers:",
        f"        - name: {_name(snippet.service)}",
        "          image: IMAGE",
        "          envFrom:",
        "            - configMapRef:",
        f"                name: {name}",
        "                optional: false",
        "        # Guard: fails, and keeps the pod from being ready, if the profile is not live",
        "        # in every worker.",
        "        - name: profile-guard",
        "          image: IMAGE-WITH-COLLBENCH",
        "          securityContext:",
        "            capabilities:",
        "              add: [SYS_PTRACE]",
        "          command:",
        "            - sh",
        "            - -c",
        "            - collbench verify /collbench/profile.env"
        f"{ranks} --wait {WAIT_S} && touch /tmp/live && exec sleep infinity",
        "          readinessProbe:",
        "            exec:",
        "              command: [test, -e, /tmp/live]",
        "          volumeMounts:",
        "            - name: collbench",
        "              mountPath: /collbench",
        "      volumes:",
        "        - name: collbench",
        "          configMap:",
        f"            name: {name}-file",
        "---",
        "# What the guard compares with.",
        "apiVersion: v1",
        "kind: ConfigMap",
        "metadata:",
        f"  name: {name}-file",
        "immutable: true",
        "data:",
        "  profile.env: |",
        *(f"    {key}={value}" for key, value in _comparable(snippet).items()),
        "",
    ]
    return "\n".join(lines)


def mounts(values: Mapping[str, str]) -> list[str]:
    """Return the files that settings name: they have to exist inside the container."""
    return [
        value
        for name, value in values.items()
        if value.startswith("/")
        and (entry := registry().get(name)) is not None
        and entry.hazard == "loads-code"
    ]


def _comparable(snippet: Snippet) -> Mapping[str, str]:
    """Return what the guard's env file can hold."""
    from collbench.profiles.env_file import representable

    return {n: v for n, v in snippet.values.items() if representable(v)}


def _name(text: str) -> str:
    """Return a checked name, quoted where YAML would take it for a number or a truth value."""
    plain = text[0].isalpha() and text.lower() not in _WORDS
    return text if plain else _yaml(text)


def _yaml(text: str) -> str:
    """Return a text as a YAML double-quoted scalar, which JSON's strings are.

    Letters stand as they are: JSON's pairs of surrogates are two characters to YAML.
    """
    return json.dumps(text, ensure_ascii=False)
