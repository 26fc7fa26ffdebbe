"""Start the launches of a bench, one after the other, and gather their record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from collbench import __version__
from collbench.bench.request import Asked
from collbench.job import Job, Plan, Run
from collbench.machine import fingerprint
from collbench.machine.probe import gpu_warnings
from collbench.record import RunRecord, now_utc

Say = Callable[[str], None]


class Launcher(Protocol):
    """Anything that starts one launch in fresh processes: the trial pool."""

    def launch(self, job: Job, *, env_file: Path | None = None) -> Run:
        """Start one launch and wait for its end."""
        ...


def measure(
    asked: Asked,
    launcher: Launcher,
    *,
    command: Sequence[str] = (),
    say: Say = lambda text: None,
    warnings: Sequence[str] = (),
) -> RunRecord:
    """Run every launch of a bench, its proof run and its memory reference; return the record.

    A launch that dies or hangs in a case is followed by one with the cases behind it, so that one
    bad case costs its own figures only.

    Args:
        asked: What to time.
        launcher: Starts launches.
        command: The user's command line, for the record.
        say: Takes lines of progress.
        warnings: What the preflight found.
    """
    runs: list[Run] = []
    for number in range(asked.launches):
        say(f"launch {number + 1} of {asked.launches}")
        runs += _launch_whole(asked.job, launcher, say)
    if asked.proof and runs[0].outcome in ("ok", "wrong"):
        say("proof run: what NCCL chooses")
        runs[0] = _with_proof(runs[0], launcher.launch(_untimed(asked.job, proof=True)))
    memory = None
    if asked.job.backend == "nccl" and asked.job.settings:
        say("GPU memory under the default")
        memory = memory_bytes(launcher.launch(replace(_untimed(asked.job), settings={})))
    facts = next((run.ranks[0] for run in runs if run.ranks), None)
    machine = fingerprint(
        library=facts.library if facts else None,
        library_path=facts.library_path if facts else None,
    )
    found = [*warnings, *gpu_warnings(), *asked.notes]
    found += [text for run in runs for text in run.warnings]
    return RunRecord(
        collbench=__version__,
        created=now_utc(),
        command=list(command) or sys.argv,
        backend=asked.job.backend,
        nranks=asked.job.nranks,
        workload=asked.workload,
        machine=machine,
        settings=asked.job.settings,
        baseline=asked.job.baseline,
        pinned=asked.pinned,
        job=asked.job,
        launches=runs,
        warnings=list(dict.fromkeys(found)),
        memory_default_bytes=memory,
    )


def memory_bytes(run: Run) -> int | None:
    """Return the GPU memory that the communicator takes on the rank where it takes most."""
    known = [rank.memory_bytes for rank in run.ranks if rank.memory_bytes is not None]
    return max(known) if known else None


def _launch_whole(job: Job, launcher: Launcher, say: Say) -> list[Run]:
    runs = [launcher.launch(job)]
    left = job
    while runs[-1].outcome in ("hung", "died"):
        say(f"{runs[-1].outcome}: {runs[-1].reason}")
        done = {times.case for times in runs[-1].cases if times.error is None and times.times_us}
        missing = [case for case in left.cases if case not in done]
        if len(missing) < 2 and not (missing and left.step):
            break
        # The first one missing is the one that did not come back.
        left = replace(left, cases=tuple(missing[1:]))
        runs.append(launcher.launch(left))
    return runs


def _untimed(job: Job, *, proof: bool = False) -> Job:
    """Return a job with the same calls and hardly any windows."""
    plan = Plan(pool_bytes=job.plan.pool_bytes, chain=2, replays=1, step_replays=1, entry_samples=1)
    return replace(job, plan=plan, pairs=False, skew=None, proof_log="on" if proof else None)


def _with_proof(run: Run, proof: Run) -> Run:
    if proof.outcome not in ("ok", "wrong"):
        text = f"proof run {proof.outcome}: {proof.reason}"
        return replace(run, warnings=(*run.warnings, text))
    return replace(run, choices=proof.choices, transports=proof.transports, env_seen=proof.env_seen)
