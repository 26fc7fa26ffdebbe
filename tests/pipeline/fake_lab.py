"""A lab whose answers are made up from a table: for tests only."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from collbench.job import Case, CaseTimes, Run, Settings, StepTimes
from collbench.lab import Purpose
from collbench.space.axes import Key, Space, axis, key

LARGE = Case(collective="all_reduce", size_bytes=8 << 20, dtype="bfloat16", mode="graph")
WINDOWS = (0.999, 1.0, 1.001)

SPACE = Space(
    axes=(
        axis("proto", [{"NCCL_PROTO": "LL"}, {"NCCL_PROTO": "Simple"}]),
        axis("algo", [{"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "allreduce:tree"}]),
        axis("channels", [{"NCCL_MIN_NCHANNELS": c} for c in ("8", "16", "32")]),
        axis("threads", [{"NCCL_NTHREADS": t} for t in ("256", "128")]),
    ),
    seeds=(key({"NCCL_MIN_NCHANNELS": "8"}),),
)
EFFECTS: Mapping[tuple[str, str], float] = {
    ("NCCL_MIN_NCHANNELS", "8"): -0.04,
    ("NCCL_MIN_NCHANNELS", "16"): -0.08,
    ("NCCL_MIN_NCHANNELS", "32"): -0.05,
    ("NCCL_PROTO", "Simple"): 0.4,
    ("NCCL_ALGO", "allreduce:tree"): 0.2,
    ("NCCL_NTHREADS", "128"): 0.03,
}
"""Setting -> effect on the log step; what is not named has none."""
LARGE_EFFECTS: Mapping[tuple[str, str], float] = {("NCCL_PROTO", "LL"): 0.9}


class FakeLab:
    """Answers launches: effects of the settings add up, with noise and slow drift.

    `outcome` may turn a launch into another outcome; `log` gets one line a launch, when it ends.
    """

    def __init__(
        self,
        *,
        effects: Mapping[tuple[str, str], float] = EFFECTS,
        sd: float = 0.003,
        seed: int = 0,
        exposed: float = 2000.0,
        outcome: Callable[[Settings, int], tuple[str, str] | None] = lambda settings, count: None,
        functions: Callable[[Settings], Mapping[str, str]] = lambda settings: {},
        log: Path | None = None,
        pause_s: float = 0.0,
    ) -> None:
        self.effects, self.sd, self.exposed = effects, sd, exposed
        self.outcome, self.functions = outcome, functions
        self.log, self.pause_s = log, pause_s
        self.rng = random.Random(seed)
        self.asked: list[tuple[str, Key, bool]] = []

    def launch(self, settings: Settings, purpose: Purpose, *, env_file: Path | None = None) -> Run:
        """Answer one launch."""
        name = key(settings)
        self.asked.append((purpose, name, env_file is not None))
        time.sleep(self.pause_s)
        count = sum(1 for _, other, _ in self.asked if other == name)
        wanted = self.outcome(settings, count)
        if self.log is not None:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(f"{purpose} {name}\n")
        if wanted is not None:
            return Run(job_id="x", settings=dict(settings), outcome=wanted[0], reason=wanted[1])
        drift = 0.01 * math.sin(len(self.asked) / 20)
        factor = math.exp(drift + self.rng.gauss(0, self.sd))
        step = 4000.0 * factor * math.exp(sum(self.effects.get(item, 0.0) for item in name))
        large = 300.0 * factor * math.exp(sum(LARGE_EFFECTS.get(item, 0.0) for item in name))
        return Run(
            job_id="x",
            settings=dict(settings),
            outcome="ok",
            cases=(CaseTimes(case=LARGE, times_us=[[large], [large]]),),
            step=StepTimes(
                total_us=[[step * w for w in WINDOWS]] * 2,
                nocomm_us=[[step - self.exposed]] * 2,
            ),
            functions=dict(self.functions(settings)) if purpose == "shortlist" else {},
        )

    def launch_communicators(
        self, shared: Settings, each: Sequence[Settings], purpose: Purpose
    ) -> list[Run]:
        """Answer one launch for each."""
        return [self.launch({**shared, **one}, purpose) for one in each]
