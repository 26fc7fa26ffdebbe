"""The real lab: every launch the search asks for becomes a job of the trial pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from collbench.job import Case, Job, Plan, Run, Settings, Step
from collbench.lab import Purpose
from collbench.pool import Pool

_EXEC_EXTRA_S = 60.0
"""A process started by exec imports torch itself, from a disk that may be cold."""
_PROOF_REPLAYS = 2
_CASE_REPLAYS = 8
_STEP_REPLAYS = 12
"""Replays of a launch of the search. Launches are the unit: a launch costs a second to start, and
the spread between launches is several times that between its replays."""


@dataclass(kw_only=True)
class PoolLab:
    """Turns (settings, purpose) into a job and launches it.

    Args:
        pool: The trial pool; its rank 0 calls.
        step: The workload.
        guard: Cases that must not get slower.
        search_guard: Of these, the ones timed in launches of the search as well.
        baseline: Set under default and candidates alike.
        plan: How much is timed in a search launch.
        deadline_s: Time of one launch, its start included.
    """

    pool: Pool
    step: Step | None
    guard: Sequence[Case] = ()
    search_guard: Sequence[Case] = ()
    """Of the guarded cases, those that search and shortlist launches time too: some 0.1 s each."""
    baseline: Mapping[str, str] = field(default_factory=dict)
    plan: Plan = Plan(replays=_CASE_REPLAYS, step_replays=_STEP_REPLAYS)  # noqa: RUF009 - frozen
    deadline_s: float = 30.0
    launches: int = 0
    """Sets of processes started so far."""

    def launch(self, settings: Settings, purpose: Purpose, *, env_file: Path | None = None) -> Run:
        """Start one launch in fresh processes and wait for its end; see `collbench.lab.Lab`."""
        return self.pool.launch(self.job(settings, purpose, env_file), env_file=env_file)

    def launch_communicators(
        self, shared: Settings, each: Sequence[Settings], purpose: Purpose
    ) -> list[Run]:
        """Try several sets of communicator-level settings in one set of processes."""
        job = replace(
            self.job(shared, purpose, None),
            communicators=tuple(dict(settings) for settings in each),
            deadline_s=self.deadline_s * max(1, len(each)),
        )
        return self.pool.launch_parts(job)

    def job(self, settings: Settings, purpose: Purpose, env_file: Path | None = None) -> Job:
        """Return the job of one launch."""
        self.launches += 1
        guarded = purpose in ("confirm", "guard", "proof")
        plan = self.plan
        if purpose == "proof":
            plan = replace(plan, replays=_PROOF_REPLAYS, step_replays=_PROOF_REPLAYS)
        return Job(
            job_id=f"{self.launches}-{purpose}",
            backend=self.pool.backend,
            nranks=self.pool.nranks,
            settings=dict(settings),
            baseline=dict(self.baseline),
            cases=tuple(self.guard if guarded else self.search_guard),
            step=None if purpose == "guard" else self.step,
            plan=plan,
            functions=purpose == "shortlist",
            proof_log="on" if purpose == "proof" else None,
            deadline_s=self.deadline_s + (_EXEC_EXTRA_S if env_file is not None else 0.0),
        )
