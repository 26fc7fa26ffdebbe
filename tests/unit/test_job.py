"""The job and the run survive JSON."""

import json

from collbench.job import Case, CaseTimes, Job, Run, Skew, Step, StepCall, from_plain, to_plain


def test_job_survives_json() -> None:
    job = Job(
        job_id="t1",
        backend="mpi",
        nranks=4,
        settings={"A": "1"},
        cases=(Case(collective="all_reduce", size_bytes=1024, dtype="float32", mode="graph"),),
        step=Step(
            name="s",
            calls=(
                StepCall(
                    collective="all_gather",
                    size_bytes=8,
                    dtype="float32",
                    count=2,
                    compute=((1, 2, 3),),
                ),
            ),
        ),
        skew=Skew(rank=1, delay_us=50.0),
        communicators=({"NCCL_PROTO": "LL"},),
    )
    assert from_plain(Job, json.loads(json.dumps(to_plain(job)))) == job


def test_run_survives_json() -> None:
    case = Case(collective="all_reduce", size_bytes=1024, dtype="float32", mode="graph")
    run = Run(
        job_id="t1",
        settings={},
        outcome="ok",
        cases=(CaseTimes(case=case, times_us=[[1.0, 2.0], [1.5, 2.5]], wrong=[0, 0]),),
    )
    assert from_plain(Run, json.loads(json.dumps(to_plain(run)))) == run
