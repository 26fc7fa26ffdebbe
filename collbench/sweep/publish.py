"""What a sweep leaves: the document, the run records, and the profile where one was confirmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collbench import __version__, profiles
from collbench.job import Job, Run, Step
from collbench.profiles.store import publish
from collbench.record import METHOD, RunRecord, dump, now_utc
from collbench.search.result import StudyResult
from collbench.units import format_size


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """What every record of a sweep has in common."""

    spec: str
    backend: str
    nranks: int
    step: Step
    machine: Any
    """`collbench.machine.Fingerprint`, with the library as a launch found it."""
    baseline: Mapping[str, str]
    pinned: Mapping[str, str]
    like: str
    command: Sequence[str]
    job: Job
    """A confirming job, without settings."""


def run_record(
    context: Context,
    settings: Mapping[str, str],
    launches: Sequence[Run],
    *,
    interleaved: str | None = None,
) -> RunRecord:
    """Return the record of one arm of the confirmation; `interleaved` names its pairs."""
    return RunRecord(
        collbench=__version__,
        created=now_utc(),
        command=list(context.command),
        backend=context.backend,
        nranks=context.nranks,
        workload=context.step.name,
        machine=context.machine,
        settings=dict(settings),
        baseline=dict(context.baseline),
        pinned=dict(context.pinned),
        job=replace(context.job, settings=dict(settings)),
        launches=list(launches),
        interleaved=interleaved,
    )


def confirming_runs(result: StudyResult, settings: Mapping[str, str]) -> list[Run]:
    """Return the completed confirming launches of one arm."""
    return [
        run
        for phase, run in result.runs
        if phase == f"{result.prefix}confirm"
        and run.outcome == "ok"
        and run.settings == dict(settings)
    ]


def evidence(result: StudyResult) -> dict[str, Any]:
    """Return the evidence of a profile: figures first, then what they rest on."""
    confirmation = result.confirmation
    return {
        "default_us": result.default_us,
        "winner_us": result.winner_us,
        "default_exposed_us": result.default_exposed_us,
        "winner_exposed_us": result.winner_exposed_us,
        "ratio": result.ratio,
        "interval": list(result.interval) if result.interval else None,
        "search_value_us": result.search_value_us,
        "noise_pct": result.noise_pct,
        "pairs": confirmation.pairs if confirmation else 0,
        "pair_values_us": [list(p) for p in confirmation.pair_values_us] if confirmation else [],
        "reference": result.reference,
        "strategy": result.strategy,
        "confirmed_on": list(result.confirmed_on),
        "ablation": [_plain(removal) for removal in result.ablation],
        "guard": [_plain(guard) for guard in confirmation.guards] if confirmation else [],
        "front": [_plain(point) for point in result.front],
        "proof": _proof(result.proof),
    }


def _plain(record: Any) -> dict[str, Any]:
    import dataclasses

    return dataclasses.asdict(record)


def _proof(run: Run | None) -> dict[str, Any] | None:
    if run is None:
        return None
    from collbench.job import to_plain

    return {
        "outcome": run.outcome,
        "reason": run.reason,
        "env_seen": dict(run.env_seen),
        "choices": to_plain(run.choices),
        "transports": dict(run.transports),
        "library": run.ranks[0].library if run.ranks else "",
        "memory_bytes": [facts.memory_bytes for facts in run.ranks],
    }


def publish_profile(result: StudyResult, context: Context, results: Path) -> Path:
    """Write the profile and its records; return its directory.

    Raises:
        CollbenchError: the folder cannot be written.
    """
    machine = context.machine.model_dump(mode="json")
    profile = profiles.Profile(
        collbench=__version__,
        method=METHOD,
        backend=context.backend,
        settings=dict(result.settings),
        baseline=dict(context.baseline),
        pinned=dict(context.pinned),
        scope=profiles.Scope(
            workload=context.step.name,
            nranks=context.nranks,
            sizes=tuple(sorted({call.size_bytes for call in context.step.calls})),
            objective=result.objective,
        ),
        machine=machine,
        evidence=evidence(result),
        hazards=result.hazards,
        conditions={"like": context.like, "must_hold": list(result.must_hold)},
        not_searched=tuple(result.not_searched),
    )
    arms = {"default.json": result.reference, "profile.json": result.settings}
    runs = {name: confirming_runs(result, settings) for name, settings in arms.items()}
    # Launch k of one arm is the neighbour of launch k of the other, unless one of them was lost.
    lost = any(
        run.outcome != "ok" for phase, run in result.runs if phase == f"{result.prefix}confirm"
    )
    even = len({len(launches) for launches in runs.values()}) == 1
    pairs = f"confirmation {now_utc()}" if even and not lost else None
    files = {
        f"records/{name}": dump(run_record(context, settings, runs[name], interleaved=pairs))
        for name, settings in arms.items()
    }
    return publish(results, profiles.machine_slug(machine), profile, files=files)


def publish_all(
    result: StudyResult, context: Context, results: Path, *, warnings: Sequence[str]
) -> list[dict[str, Any]]:
    """Publish every profile of a sweep; return its documents: the safe study's, the hazards'.

    The ends of a front come before its knee, so that the knee is the newest profile.

    Raises:
        CollbenchError: the folder cannot be written.
    """
    documents = []
    for part in [result, *([result.hazard] if result.hazard else [])]:
        profiles = []
        for one in (*part.ends, part):
            folder = publish_profile(one, context, results) if one.settings else None
            profiles.append((one, folder))
        profiles.insert(0, profiles.pop())
        whole = document(part, context, profiles[0][1], warnings=warnings)
        whole["profiles"] = [_emitted(one, folder) for one, folder in profiles if folder]
        whole["notes"] += [
            f"no profile for servers that only {end.objective}: {'; '.join(end.reasons)}"
            for end in part.ends
            if not end.settings
        ]
        documents.append(whole)
    return documents


def _emitted(result: StudyResult, profile: Path) -> dict[str, Any]:
    """Return one profile among those of a sweep, and which server it is for."""
    confirmation = result.confirmation
    return {
        "objective": result.objective,
        "server": result.prefix.strip() or "both",
        "profile": str(profile),
        "settings": dict(result.settings),
        "default_us": result.default_us,
        "winner_us": result.winner_us,
        "ratio": result.ratio,
        "interval": list(result.interval) if result.interval else None,
        "other_ratio": confirmation.other_ratio if confirmation else None,
        "must_hold": list(result.must_hold),
    }


def document(
    result: StudyResult, context: Context, profile: Path | None, *, warnings: Sequence[str]
) -> dict[str, Any]:
    """Return the document of a sweep as docs/schema/sweep.json has it."""
    return {
        "schema": 1,
        "command": "sweep",
        "exit_code": 0,
        "verdict": result.verdict,
        "profile": str(profile) if profile is not None else None,
        "settings": dict(result.settings),
        "baseline": {**context.pinned, **context.baseline},
        "default_us": result.default_us,
        "winner_us": result.winner_us,
        "default_exposed_us": result.default_exposed_us,
        "winner_exposed_us": result.winner_exposed_us,
        "ratio": result.ratio,
        "interval": list(result.interval) if result.interval else None,
        "search_value_us": result.search_value_us,
        "noise_pct": result.noise_pct,
        "visible_pct": result.visible_pct,
        "trials": result.trials,
        "trials_reused": result.trials_reused,
        "outcomes": dict(result.outcomes),
        "not_searched": list(result.not_searched),
        "not_searched_command": result.not_searched_command,
        "backend": context.backend,
        "seconds": round(result.seconds, 3),
        "reason": "; ".join(result.reasons) if result.verdict == "keep_default" else None,
        "notes": list(result.reasons) if result.verdict == "profile" else [],
        "spec": context.spec,
        "workload": context.step.name,
        "sizes": [format_size(call.size_bytes) for call in context.step.calls],
        "nranks": context.nranks,
        "objective": result.objective,
        "strategy": result.strategy,
        "front": [_plain(point) for point in result.front],
        "machine": context.machine.model_dump(mode="json"),
        "must_hold": list(result.must_hold),
        "confirmed_on": list(result.confirmed_on),
        "reference": dict(result.reference),
        "warnings": [*warnings, *result.warnings],
    }
