"""The fleet as a document and as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from collbench.errors import Exit
from collbench.fleet.classes import MachineClass, classes, deviations
from collbench.fleet.collect import Fleet, Machine
from collbench.terminal.words import clean, percent_text, settings_text

_HEAD = ("machine", "profile", "time", "age", "last check", "state")


def document(fleet: Fleet, *, now: datetime | None = None) -> dict[str, Any]:
    """Return the JSON document; ``exit_code`` is 3 where some machine deviates."""
    now = now or datetime.now(UTC)
    groups = classes(fleet.machines)
    machines = [_machine(one, group, now) for group in groups for one in group.machines]
    wrong = any(one["deviations"] for one in machines)
    return {
        "schema": 1,
        "command": "fleet",
        "exit_code": int(Exit.FINDINGS if wrong else Exit.OK),
        "machines": machines,
        "classes": [
            {
                "id": group.id,
                "title": group.title,
                "machines": [one.name for one in group.machines],
                "settings": group.settings,
                "good": group.good,
            }
            for group in groups
        ],
        "unreadable": [{"path": str(path), "reason": why} for path, why in fleet.unreadable],
    }


def _machine(machine: Machine, group: MachineClass, now: datetime) -> dict[str, Any]:
    profile, check = machine.profile, machine.last_check
    return {
        "machine": machine.name,
        "host": machine.host,
        "class": group.id,
        "library": machine.facts.get("library"),
        "driver": machine.facts.get("driver"),
        "verdict": machine.verdict or ("profile" if profile else None),
        "profile": profile.id if profile else None,
        "path": str(machine.profile_path) if machine.profile_path else None,
        "settings": dict(profile.settings) if profile else {},
        "ratio": _number(profile.evidence.get("ratio")) if profile else None,
        "age_days": _days(machine.created, now),
        "last_check": {
            "age_days": _days(check.when, now),
            "verdict": check.verdict,
            "ratio": check.ratio,
        }
        if check
        else None,
        "deviations": [{"code": one.code, "text": one.text} for one in deviations(machine, group)],
    }


def text(plain: dict[str, Any]) -> str:
    """Return the table of a document, what deviates in words, and what each class may use."""
    rows = [_HEAD, *(_row(one) for one in plain["machines"])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.append("")
    for one in plain["machines"]:
        lines += [
            f"{clean(one['machine'], 60)}: {clean(found['text'], 200)}"
            for found in one["deviations"]
        ]
    for group in plain["classes"]:
        if group["settings"] is None:
            continue
        word = "confirmed on two machines or more" if group["good"] else "confirmed on one machine"
        count = len(group["machines"])
        lines.append(
            f"class {clean(group['title'], 60)} ({count} machine{'s' if count != 1 else ''}): "
            f"{settings_text(group['settings'])}: {word}"
        )
    for one in plain["unreadable"]:
        lines.append(f"not read: {clean(one['path'])}: {clean(one['reason'])}")
    return "\n".join(lines).rstrip() + "\n"


def _row(one: dict[str, Any]) -> Sequence[str]:
    check = one["last_check"]
    return (
        clean(one["machine"], 40),
        one["profile"] or ("default" if one["verdict"] == "keep_default" else "-"),
        percent_text(one["ratio"]) if one["ratio"] is not None else "-",
        _age(one["age_days"]),
        f"{clean(check['verdict'].replace('_', ' '), 20)}, {_age(check['age_days'])} ago"
        if check
        else "never",
        "deviates" if one["deviations"] else "ok",
    )


def _days(when: datetime | None, now: datetime) -> float | None:
    return round(max(0.0, (now - when).total_seconds() / 86400), 3) if when else None


def _age(days: float | None) -> str:
    if days is None:
        return "-"
    if days < 1:
        return f"{days * 24:.0f} h"
    return f"{days:.0f} d"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
