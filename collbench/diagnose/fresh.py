"""A fresh bench, started as a child, and what it says against a profile's record."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collbench.diagnose.costs import Arms, Remeasured, load_record, remeasured
from collbench.diagnose.record_rules import judge_record
from collbench.errors import CollbenchError, Exit
from collbench.findings import Finding
from collbench.profiles.store import Reference
from collbench.record import RunRecord
from collbench.results import Results, results
from collbench.units import format_size

LAUNCHES = 3
SLOWER_SHARE = 0.03
"""A fresh step that is slower by more, and by more than the launches differ, is a change."""


def bench_arguments(reference: Reference | None, arms: Arms | None) -> list[str]:
    """Return the arguments of a bench that repeats a profile's record.

    The step, its sizes and the ranks are the record's; without one, the default bench.
    """
    arguments = ["--launches", str(LAUNCHES)]
    if reference is not None:
        arguments += ["--env", str(reference.env_path)]
    record = arms.record if arms is not None else None
    if record is None:
        return arguments
    arguments += ["--backend", record.backend, "--nproc-per-node", str(record.nranks)]
    cases = record.job.cases
    modes: list[str] = list(dict.fromkeys(case.mode for case in cases))
    if record.workload and record.job.step is not None:
        arguments += ["--workload", record.workload]
        modes.insert(0, "step")
    if modes:
        arguments += ["--mode", ",".join(modes)]
    if cases:
        sizes = sorted({case.size_bytes for case in cases})
        collectives = dict.fromkeys(case.collective for case in cases)
        arguments += ["--sizes", ",".join(map(str, sizes)), "--collective", ",".join(collectives)]
    return arguments


def measure(arguments: list[str], *, timeout_s: float, say: Callable[[str], None]) -> RunRecord:
    """Run ``collbench bench`` as a child and return its record.

    Raises:
        CollbenchError: it failed, hung, or left no record.
    """
    with tempfile.TemporaryDirectory(prefix="collbench-diagnose-") as folder:
        document = Path(folder) / "bench.json"
        command = [sys.executable, "-m", "collbench", "bench", *arguments,
                   "--json-file", str(document), "--out", folder]  # fmt: skip
        say("measuring: collbench bench " + " ".join(arguments))
        try:
            done = subprocess.run(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                timeout=timeout_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise CollbenchError(
                f"--measure: collbench bench did not end within {timeout_s:.0f} s",
                fix="run it by itself: collbench bench " + " ".join(arguments),
                code=Exit.FAILED,
            ) from error
        path = _record_path(document)
        if path is None:
            tail = done.stderr.strip().splitlines()[-1:] or ["no output"]
            raise CollbenchError(
                f"--measure: collbench bench failed ({done.returncode}): {tail[0][:200]}",
                fix="run it by itself: collbench bench " + " ".join(arguments),
                code=Exit.FAILED,
            )
        return load_record(path)


def _record_path(document: Path) -> Path | None:
    try:
        plain: Any = json.loads(document.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return Path(plain["record"]) if plain.get("record") else None


def check_comparable(record: RunRecord, arms: Arms, path: Path) -> None:
    """Refuse a record that is no repetition of the profile's own.

    Raises:
        CollbenchError: it was made with other settings, ranks or another library.
    """
    then = arms.record
    if then is None:
        return
    lacking = sorted(n for n, v in then.settings.items() if record.settings.get(n) != v)
    if lacking:
        names = ", ".join(f"{name}={then.settings[name]}" for name in lacking)
        raise CollbenchError(
            f"--record {path}: was not measured with {names} of the profile",
            fix="repeat the profile's own bench (--measure), or compare two records with "
            "`collbench compare`",
        )
    for name in ("backend", "nranks"):
        now, was = getattr(record, name), getattr(then, name)
        if now != was:
            raise CollbenchError(
                f"--record {path}: {name}: {now}, the profile's record has {was}",
                fix="give a record of the profile's own job, or let --measure make one",
            )


def judge_fresh(record: RunRecord, arms: Arms | None) -> tuple[list[Finding], Results]:
    """Return what a fresh record shows by itself and against the profile's own."""
    now = results(record)
    found = judge_record(record)
    failed = [(what, why) for what, why in now.failed]
    if arms is not None and arms.profile is not None:
        change = remeasured(now, arms.profile)
        if is_slower(change, arms):
            found.append(_slower(change))
    if failed:
        found.append(
            Finding(
                code="verify.beyond_comm",
                confidence="medium",
                evidence=f"{failed[0][0]} gave no times: {failed[0][1][:120]}",
                next="collbench bench --launches 1   shows what fails",
            )
        )
    return found, now


def _slower(change: Remeasured) -> Finding:
    worst = change.worst
    said = []
    if change.delta_ms is not None:
        said.append(f"the profile's own step takes {change.delta_ms:+.3f} ms more than recorded")
    if worst is not None:
        said.append(
            f"{worst.case.collective} of {format_size(worst.case.size_bytes)} went from "
            f"{change.worst_was_us:.1f} to {worst.p50_us:.1f} us"
        )
    return Finding(
        code="verify.comm_regression",
        expected_ms=change.delta_ms,
        evidence="; ".join(said),
        next="the machine changed under the profile: links, driver, library, other processes; "
        "then tune again",
    )


def is_slower(change: Remeasured, arms: Arms) -> bool | None:
    """Return whether a fresh bench is slower than recorded, beyond noise; None: cannot be told.

    The step decides; without one, the case that became slower by most, beyond the launches'
    spread.
    """
    step = arms.profile.step if arms.profile is not None else None
    if change.delta_ms is not None and step is not None:
        return change.delta_ms > max(change.noise_ms, SLOWER_SHARE * step.total_us / 1000)
    if change.compared == 0:
        return None
    return change.worst is not None and change.worst_share > max(
        2 * SLOWER_SHARE, change.worst_spread
    )
