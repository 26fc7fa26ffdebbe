"""Arms measured beside each other: interleaved launches whose order turns with every block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collbench.confirm.objective import Objective, Sample, sample, sample_alone
from collbench.errors import CollbenchError, Exit
from collbench.job import Run, Settings
from collbench.lab import Lab, Purpose


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One launch of one arm."""

    arm: str
    run: Run
    sample: Sample | None
    """None where the launch did not end well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """How launches are read and told of; the same through a whole sweep."""

    lab: Lab
    backend: str
    objective: Objective = "decode"
    alone: bool = False
    """The objective is one end of a front: the sizes of the other side are not guarded."""
    told: Callable[[Settings, Run, float | None], None] = lambda settings, run, ratio: None
    """Called after every launch with settings, run and the ratio to the default, if known."""

    def read(self, run: Run) -> Sample | None:
        """Return the numbers of a launch; None where it did not end well."""
        if run.outcome != "ok":
            return None
        if self.alone and self.objective != "pareto":
            return sample_alone(run, self.backend, self.objective)
        return sample(run, self.backend, self.objective)

    def launch(
        self,
        settings: Settings,
        purpose: Purpose,
        *,
        arm: str = "",
        env_file: Path | None = None,
        reference_us: float | None = None,
    ) -> Measured:
        """Start one launch and read it."""
        run = self.lab.launch(settings, purpose, env_file=env_file)
        found = self.read(run)
        ratio = found.value_us / reference_us if found and reference_us else None
        self.told(settings, run, ratio)
        return Measured(arm=arm, run=run, sample=found)


def default_launch(
    setup: Setup, purpose: Purpose, reference: Settings, *, env_file: Path | None = None
) -> Sample:
    """Launch the default; once more if it fails, since nothing can be judged without it.

    Raises:
        CollbenchError: it failed twice in a row.
    """
    for attempt in range(2):
        done = setup.launch(reference, purpose, arm="default", env_file=env_file)
        if done.sample is not None:
            return done.sample
        if attempt:
            what = "the default itself" if not reference else "the reference"
            raise CollbenchError(
                f"{what} cannot be measured: twice {done.run.outcome}: {done.run.reason}",
                fix="run `collbench bench` to see what is wrong with this machine",
                code=Exit.FAILED,
            )
    raise AssertionError("unreachable")


@dataclass(kw_only=True)
class Blocks:
    """Blocks of arms; ``logs(arm)`` are log ratios to the reference of the same block."""

    setup: Setup
    arms: Mapping[str, Settings]
    """Name -> settings of every arm but the reference."""
    reference: Settings = field(default_factory=dict)
    purpose: Purpose = "shortlist"
    samples: dict[str, list[Sample | None]] = field(default_factory=dict)
    failures: dict[str, list[Run]] = field(default_factory=dict)
    base: list[Sample] = field(default_factory=list)
    runs: dict[str, list[Run]] = field(default_factory=dict)

    def block(self, alive: Sequence[str] | None = None) -> None:
        """Measure the reference and every arm once; the order turns round each time."""
        names = list(self.arms) if alive is None else [n for n in self.arms if n in alive]
        order = ["", *names]
        if len(self.base) % 2:
            order.reverse()
        done: dict[str, Sample | None] = {}
        base: Sample | None = None
        for name in order:
            if name == "":
                base = default_launch(self.setup, self.purpose, self.reference)
                continue
            known = self.base[-1].value_us if self.base else None
            launched = self.setup.launch(
                self.arms[name], self.purpose, arm=name, reference_us=known
            )
            done[name] = launched.sample
            self.runs.setdefault(name, []).append(launched.run)
            if launched.sample is None:
                self.failures.setdefault(name, []).append(launched.run)
        assert base is not None
        self.base.append(base)
        for name in self.arms:
            self.samples.setdefault(name, []).append(done.get(name))

    def logs(self, arm: str, case: str | None = None) -> list[float]:
        """Return the log ratios of an arm: its objective, ``other``, ``p95`` or a case."""
        return [
            math.log(read(found, case) / read(base, case))
            for found, base in zip(self.samples.get(arm, []), self.base, strict=True)
            if found is not None and has(found, case) and has(base, case)
        ]

    def values(self, arm: str) -> list[float]:
        """Return the objective of every good launch of an arm; ``""`` is the reference."""
        found = self.base if arm == "" else self.samples.get(arm, [])
        return [s.value_us for s in found if s is not None]


def has(found: Sample, case: str | None) -> bool:
    """Return whether a sample holds a case."""
    if case == "other":
        return found.other_us is not None
    return case is None or case == "p95" or case in found.cases


def read(found: Sample, case: str | None) -> float:
    """Return the objective (None), the other objective, the windows' ``p95`` or one case."""
    if case is None:
        return found.value_us
    if case == "other":
        assert found.other_us is not None
        return found.other_us
    return found.p95_us if case == "p95" else found.cases[case]
