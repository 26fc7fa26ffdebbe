"""What every backend owes, with real processes: MPI and Gloo, two and four ranks."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from collbench.backends import COLLECTIVES, SUPPORTED_DTYPES
from collbench.job import Case, Job, Plan, Run, Skew, Step, StepCall, from_plain, to_plain

pytestmark = pytest.mark.dist

LAUNCH_JOBS = Path(__file__).parent / "launch_jobs.py"
PLAN = Plan(pool_bytes=16384, chain=8, replays=4, step_replays=6, entry_samples=8)
STEP = Step(
    name="three",
    calls=(
        StepCall(collective="all_reduce", size_bytes=4096, dtype="float32", count=3),
        StepCall(collective="all_gather", size_bytes=8192, dtype="float32", count=1),
    ),
)


def jobs_of(backend: str, nranks: int) -> list[Job]:
    common = {"backend": backend, "nranks": nranks, "plan": PLAN, "deadline_s": 60.0}
    wanted = [("all_reduce", dtype) for dtype in sorted(SUPPORTED_DTYPES[backend])]
    wanted += [(name, dtype) for name in COLLECTIVES[1:] for dtype in ("float32", "int64")]
    cases = [
        Case(collective=collective, size_bytes=4096, dtype=dtype, mode="eager")
        for collective, dtype in wanted
    ]
    cases += [
        Case(collective="all_reduce", size_bytes=4096, dtype="float32", mode="entry"),
        Case(collective="all_reduce", size_bytes=4096, dtype="bfloat16", mode="eager"),
    ]
    return [
        Job(job_id="cases", cases=tuple(cases), functions=True, pairs=True, **common),  # type: ignore[arg-type]
        Job(job_id="step", step=STEP, **common),  # type: ignore[arg-type]
        Job(job_id="late", step=STEP, skew=Skew(rank=1, delay_us=3000.0), **common),  # type: ignore[arg-type]
        Job(job_id="empty", step=Step(name="nothing", calls=()), **common),  # type: ignore[arg-type]
    ]


@pytest.fixture(
    scope="module", params=[("mpi", 2), ("mpi", 4), ("gloo", 2), ("gloo", 4)], ids=lambda p: f"{p}"
)
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    backend, nranks = request.param
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torchrun is not here")
    if backend == "mpi" and importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not here")
    folder = tmp_path_factory.mktemp("contract")
    jobs = jobs_of(backend, nranks)
    (folder / "jobs.json").write_text(json.dumps([to_plain(job) for job in jobs]))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(nranks), str(LAUNCH_JOBS)),
            *(str(folder / "jobs.json"), str(folder / "runs.json")),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads((folder / "runs.json").read_text())
    return {job.job_id: from_plain(Run, parts[0]) for job, parts in zip(jobs, found, strict=True)}


def test_every_collective_and_dtype_is_timed_with_right_data(runs: dict[str, Run]) -> None:
    run = runs["cases"]
    assert run.outcome == "ok", run.reason
    ranks = len(run.ranks)
    for times in run.cases[:-1]:
        assert times.error is None, times.case.key
        assert times.wrong == [0] * ranks, times.case.key
        expected = PLAN.entry_samples if times.case.mode == "entry" else PLAN.replays
        assert [len(rank) for rank in times.times_us] == [expected] * ranks
        assert all(us > 0 for rank in times.times_us for us in rank)


def test_a_dtype_the_backend_lacks_costs_its_own_case_and_names_the_others(
    runs: dict[str, Run],
) -> None:
    error = runs["cases"].cases[-1].error
    assert error is not None
    assert error.startswith("unsupported: ")
    assert "float32" in error


def test_every_function_of_a_server_answers_rightly(runs: dict[str, Run]) -> None:
    functions = runs["cases"].functions
    assert len(functions) == 36
    assert set(functions.values()) == {"ok"}


def test_every_ordered_pair_is_probed_once(runs: dict[str, Run]) -> None:
    run = runs["cases"]
    n = len(run.ranks)
    assert sorted((p.src, p.dst) for p in run.pairs) == [
        (a, b) for a in range(n) for b in range(n) if a != b
    ]
    assert all(p.latency_us > 0 and p.bandwidth_gbs > 0 for p in run.pairs)


def test_every_rank_says_what_it_was(runs: dict[str, Run]) -> None:
    facts = runs["step"].ranks
    assert [rank.rank for rank in facts] == list(range(len(facts)))
    for rank in facts:
        assert rank.device == "cpu"
        assert rank.library.startswith(("Open MPI", "Gloo", "MPICH"))
        assert rank.library_path
        assert rank.cpus
        assert set(rank.seconds) >= {"communicator", "first_collective", "timing", "total"}


def test_the_step_is_timed_on_every_rank_without_compute(runs: dict[str, Run]) -> None:
    step = runs["step"].step
    assert step is not None
    n = len(runs["step"].ranks)
    assert [len(times) for times in step.total_us] == [PLAN.step_replays] * n
    assert step.nocomm_us == []
    assert step.wrong == [0] * n


def test_a_late_rank_spends_its_time_itself_and_makes_the_others_wait(
    runs: dict[str, Run],
) -> None:
    from collbench.bench.table import attribution

    step = runs["late"].step
    assert step is not None
    transfer, waiting = attribution([step])
    assert transfer is not None
    assert waiting is not None
    assert median(step.nocomm_us[1]) > 4 * 3000
    assert median(step.nocomm_us[0]) < 4 * 3000
    # All calls but the first are met by ranks that have been waiting for the late one.
    assert waiting > 2 * 3000


def test_an_empty_step_costs_next_to_nothing(runs: dict[str, Run]) -> None:
    step = runs["empty"].step
    assert step is not None
    assert min(step.total_us[0]) < 20.0
