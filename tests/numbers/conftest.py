"""Run records with planted times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from collbench.job import Case, CaseTimes, Job, RankFacts, Run, Step, StepCall, StepTimes
from collbench.machine import Fingerprint
from collbench.record import RunRecord

Maker = Callable[..., RunRecord]


def case_of(key: str) -> Case:
    collective, size, dtype, mode = key.split("/")
    return Case(collective=collective, size_bytes=int(size), dtype=dtype, mode=mode)  # type: ignore[arg-type]


def make(
    values: Mapping[str, Sequence[float]],
    *,
    step: Sequence[float] = (),
    nocomm: float = 0.0,
    wrong: Mapping[str, int] | None = None,
    windows: int = 4,
    nranks: int = 2,
    machine: Mapping[str, Any] | None = None,
    rank: Mapping[str, Any] | None = None,
    launches: int | None = None,
    **changes: Any,
) -> RunRecord:
    """A record whose launch k of a case takes ``values[case][k]`` us in every window and rank."""
    cases = {key: case_of(key) for key in values}
    count = launches or max((len(v) for v in [*values.values(), step]), default=0)
    runs = []
    for k in range(count):
        times = tuple(
            CaseTimes(
                case=cases[key],
                times_us=[[v[k]] * windows] * nranks,
                wrong=[(wrong or {}).get(key, 0), *[0] * (nranks - 1)],
            )
            for key, v in values.items()
            if k < len(v)
        )
        stepped = None
        if k < len(step):
            bare = [[nocomm] * windows] * nranks if nocomm else []
            stepped = StepTimes(total_us=[[step[k]] * windows] * nranks, nocomm_us=bare)
        facts = tuple(
            RankFacts(
                **{
                    "rank": r,
                    "pid": 100 + r,
                    "host": "node-a",
                    "device": "GPU",
                    "library": "NCCL 2.28.9",
                    "bound": "cpus+memory",
                    **(rank or {}),
                }
            )
            for r in range(nranks)
        )
        runs.append(
            Run(job_id=f"l{k}", settings={}, outcome="ok", cases=times, step=stepped, ranks=facts)
        )
    plan_step = Step(
        name="s",
        calls=(StepCall(collective="all_reduce", size_bytes=8192, dtype="bfloat16", count=3),),
    )
    fields: dict[str, Any] = {
        "created": "2026-01-01T00:00:00Z",
        "backend": "nccl",
        "nranks": nranks,
        "machine": Fingerprint(**{"host": "node-a", "driver": "580.1", **(machine or {})}),
        "job": Job(
            job_id="j",
            backend="nccl",
            nranks=nranks,
            cases=tuple(cases.values()),
            step=plan_step if step else None,
        ),
        "launches": runs,
    }
    return RunRecord(**{**fields, **changes})


@pytest.fixture
def make_record() -> Maker:
    return make
