"""Launch snippets: where a profile gets lost between its file and the server's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collbench.diagnose.env_rules import NEXT_ABSENT
from collbench.diagnose.file_rules import ADVICE, crlf, variable_absent
from collbench.diagnose.file_rules import quoted as quoted_values
from collbench.diagnose.setting_rules import judge_settings
from collbench.findings import Finding
from collbench.readers import Given, Reading
from collbench.readers.env_faults import faults, name_of
from collbench.readers.launch import Delivery
from collbench.readers.text import printable


def judge_launch(reading: Reading, given: Given) -> list[Finding]:
    """Return where a profile gets lost between its file and the server's process."""
    facts, delivery = reading.facts, reading.signs["delivery"]
    found = _ways_lost(reading, facts, delivery)
    missing, profile = facts.get("missing", []), given.profile or {}
    if missing and len(missing) == len(profile):
        found.append(
            Finding(
                code="env.profile_absent",
                line=reading.line("service"),
                evidence=f"none of {', '.join(missing)} reaches the server",
                next=NEXT_ABSENT,
            )
        )
    elif missing:
        found.append(variable_absent(missing))
    found += _wrong_values(reading, facts, delivery, profile)
    arriving = facts["env_in_service"] | facts.get("nccl_conf_adds", {})
    plain = {n: v for n, v in arriving.items() if v and v[0] not in "'\"" and v[-1] != "\r"}
    found += judge_settings(plain, given, lambda name: reading.line(f"var:{name}"))
    adds = facts.get("nccl_conf_adds", {})
    if adds:
        name = next(iter(adds))
        found.append(
            Finding(
                code="env.shadowed_by_conf",
                line=reading.line(f"var:{name}"),
                evidence=f"nccl.conf sets {', '.join(adds)}, which no environment shows",
                next="list nccl.conf as a source of settings, or remove the lines; look into the "
                "container, not at the host",
            )
        )
    unknown = reading.signs["unknown"]
    if unknown:
        unseen = f" ({', '.join(printable(u, 60) for u in delivery.unseen)} is not shown)"
        found.append(
            Finding(
                code="env.unknown",
                line=reading.line("service"),
                evidence=f"{', '.join(unknown)} cannot be told from this"
                + (unseen if delivery.unseen else ""),
                next="add the file to the paste, or ask the process: `collbench verify PROFILE`",
            )
        )
    return found


def _ways_lost(reading: Reading, facts: Mapping[str, Any], delivery: Delivery) -> list[Finding]:
    missing = facts.get("missing", [])
    found = []
    if facts.get("lost_at") and missing:
        found.append(
            Finding(
                code="env.lost_in_launcher",
                line=reading.line("lost", "service"),
                evidence=f"{facts['lost_at']} drops {', '.join(missing)}",
                next="load the profile behind it: source it in the job script, or start with "
                "`collbench run PROFILE -- CMD` there",
            )
        )
    unasked = [name for name in missing if name not in delivery.asked]
    listed = not unasked and "lost_at" in facts
    if missing and delivery.launcher == "compose" and not listed:
        found.append(
            Finding(
                code="env.not_listed_in_compose",
                line=reading.line("service"),
                evidence=f"service {delivery.service} lists neither {', '.join(missing)} nor an "
                "env_file with it; .env only fills in the YAML",
                next="add `env_file: profile.env` to the service, then "
                "`docker compose up -d --force-recreate`",
            )
        )
    if unasked and delivery.launcher == "systemd" and not delivery.environment_files:
        found.append(
            Finding(
                code="env.unit_without_file",
                line=reading.line("service"),
                evidence=f"{delivery.service or 'the unit'} loads no EnvironmentFile in the end",
                next="`systemctl edit UNIT`: [Service] EnvironmentFile=/etc/collbench/profile.env, "
                "then daemon-reload and restart",
            )
        )
    return found


def _wrong_values(
    reading: Reading, facts: Mapping[str, Any], delivery: Delivery, profile: Mapping[str, str]
) -> list[Finding]:
    found = []
    differs, env = facts.get("differs", []), facts["env_in_service"]
    if differs:
        said = [f"{n}={printable(str(env.get(n)), 60)}, wanted {profile[n]}" for n in differs]
        found.append(
            Finding(
                code="env.value_differs",
                line=reading.line(f"var:{differs[0]}"),
                evidence="; ".join(said),
                next="remove the other definition, or make it the profile's",
            )
        )
    image = [
        n
        for n in differs
        if n in delivery.env and delivery.env[n].origin in ("image", "entrypoint")
    ]
    if image:
        found.append(
            Finding(
                code="env.image_conflict",
                line=reading.line(f"var:{image[0]}"),
                evidence=f"{delivery.env[image[0]].origin} of the image sets "
                f"{', '.join(f'{n}={printable(str(env[n]), 40)}' for n in image)}",
                next="remove it from the image, or start the server past the entrypoint "
                "(--entrypoint) with the profile",
            )
        )
    quoted = facts.get("quoted", [])
    if quoted:
        found.append(quoted_values(quoted, reading.line(f"var:{quoted[0]}")))
    returned = [n for n in differs if str(env.get(n, "")).endswith("\r")]
    if returned:
        found.append(crlf(returned, reading.line(f"var:{returned[0]}")))
    cut = [n for n in differs if profile[n].partition(";")[0] == env.get(n) and ";" in profile[n]]
    if cut:
        found.append(
            Finding(
                code="env.sourced_semicolon",
                line=reading.line(f"cut:{cut[0]}", f"var:{cut[0]}"),
                evidence=f"{', '.join(cut)} was cut at its semicolon",
                next=ADVICE["env.sourced_semicolon"],
            )
        )
    return found + _unportable(facts, delivery) + _server_writes(reading, delivery, profile)


def _unportable(facts: Mapping[str, Any], delivery: Delivery) -> list[Finding]:
    """Find the line of an environment file that its reader takes differently than meant."""
    wrong = {*facts.get("missing", ()), *facts.get("differs", ())}
    for section in delivery.files:
        texts = section.text.split("\n")
        for line, fault in faults(section.text):
            name = name_of(texts[line - 1])
            if name in wrong and fault not in ("quotes", "semicolon", "crlf"):
                return [
                    Finding(
                        code="env.not_portable",
                        line=line + section.start - 1,
                        evidence=f"{name}: {fault}, which not every reader of the file takes alike",
                        next=ADVICE["env.not_portable"],
                    )
                ]
    return []


def _server_writes(
    reading: Reading, delivery: Delivery, profile: Mapping[str, str]
) -> list[Finding]:
    """Find values that the server is going to replace, because of one of its arguments."""
    from collbench.knobs.servers import chosen_writes

    words = " ".join(delivery.arguments)
    server = "sglang" if "sglang" in words else "vllm" if "vllm" in words else "none"
    hit = {
        name: write
        for name, write in chosen_writes(server, delivery.arguments).items()
        if write.when == "overwrites" and write.option and name in profile
        and profile[name] != write.value
    }  # fmt: skip
    if not hit:
        return []
    write = next(iter(hit.values()))
    return [
        Finding(
            code="env.overridden_by_server",
            confidence="medium",
            line=reading.line("service"),
            evidence=f"{write.option} makes {server} write {', '.join(sorted(hit))}",
            next=f"start without {write.option}, or tune under it with these values pinned",
        )
    ]
