"""The textfile of a Prometheus node exporter: step, communication, liveness, age."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from collbench.diagnose.causes import Diagnosis, Evidence
from collbench.files import write_atomic
from collbench.profiles.store import Reference
from collbench.readers.e2e import PAIR
from collbench.results import Results


def text(
    diagnosis: Diagnosis,
    evidence: Evidence,
    reference: Reference | None,
    fresh: Results | None,
    now: float | None = None,
) -> str:
    """Return the metrics; a figure that is not known is left out, never written as 0."""
    label = f'{{profile="{_label(reference.id if reference else "")}"}}'
    lines: list[str] = []

    def gauge(name: str, help_text: str, value: float | None) -> None:
        if value is not None:
            lines.extend(
                (
                    f"# HELP {name} {help_text}",
                    f"# TYPE {name} gauge",
                    f"{name}{label} {value:.12g}",
                )
            )

    gauge("collbench_step_seconds", "Step time, of the server or measured.", _step(evidence, fresh))
    exposed = fresh.step.exposed_us if fresh and fresh.step else None
    gauge(
        "collbench_exposed_communication_seconds",
        "Step minus the same without collectives, measured.",
        exposed / 1e6 if exposed is not None else None,
    )
    gauge(
        "collbench_step_change_seconds",
        "Change of the step against the baseline.",
        diagnosis.delta_ms / 1e3 if diagnosis.delta_ms is not None else None,
    )
    live = {"live": 1.0, "different": 0.0}.get(evidence.live or "")
    gauge("collbench_profile_live", "1: every worker has the profile.", live)
    gauge("collbench_profile_age_seconds", "Since the profile was made.", _age(reference, now))
    regressed = {"regression": 1.0, "no_change": 0.0}.get(diagnosis.verdict)
    gauge("collbench_regression", "1: slower than the baseline beyond noise.", regressed)
    gauge("collbench_diagnose_time_seconds", "When this was written.", now or time.time())
    return "\n".join(lines) + "\n"


def write(path: Path, content: str) -> None:
    """Write the file whole or not at all: a scraper may read it at any time."""
    write_atomic(path, content)


def _step(evidence: Evidence, fresh: Results | None) -> float | None:
    if evidence.steps is not None and all(label in evidence.steps.runs for label in PAIR):
        from statistics import median

        values = evidence.steps.runs["after"].verify_ms
        return median(values) / 1e3 if values else None
    return fresh.step.total_us / 1e6 if fresh and fresh.step else None


def _age(reference: Reference | None, now: float | None) -> float | None:
    created = reference.profile.created if reference and reference.profile else ""
    try:
        made = datetime.fromisoformat(created.replace("Z", "+00:00"))
    except ValueError:
        return None
    if made.tzinfo is None:
        made = made.replace(tzinfo=UTC)
    return max(0.0, (now or time.time()) - made.timestamp())


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "")
