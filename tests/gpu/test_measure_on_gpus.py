"""The measuring side on two real GPUs: data, attribution, overhead, refusals, communicators."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from collbench.job import Case, Job, Mode, Plan, Run, Skew, Step, StepCall, from_plain, to_plain

pytestmark = pytest.mark.gpu(2)

LAUNCH_JOBS = Path(__file__).parent.parent / "contract" / "launch_jobs.py"
PRODUCTS = ((4, 7168, 1792), (4, 1792, 7168))
VERIFY = Step(
    name="verify-61x7168",
    calls=(
        StepCall(
            collective="all_reduce",
            size_bytes=57344,
            dtype="bfloat16",
            count=122,
            compute=PRODUCTS,
        ),
        StepCall(collective="all_gather", size_bytes=1310720, dtype="bfloat16", count=1),
    ),
)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "send_recv")


def case(collective: str, size: int, mode: Mode = "graph", dtype: str = "bfloat16") -> Case:
    return Case(collective=collective, size_bytes=size, dtype=dtype, mode=mode)


def job(name: str, **fields: object) -> Job:
    return Job(job_id=name, backend="nccl", nranks=2, deadline_s=120.0, **fields)  # type: ignore[arg-type]


def all_jobs() -> list[Job]:
    path = torch_nccl()
    jobs = [
        job("collectives", cases=tuple(case(c, s) for c in COLLECTIVES for s in (1024, 65536))),
        job(
            "modes",
            cases=tuple(case("all_reduce", 8192, mode) for mode in ("graph", "eager", "entry")),
        ),
        job("dtypes", cases=tuple(case("all_reduce", 8192, dtype=d) for d in DTYPES)),
        job("large", cases=(case("all_reduce", 64 << 20), case("all_gather", 64 << 20))),
        job("step", step=VERIFY),
        job(
            "rounds",
            cases=(
                case("all_reduce", 8192, "eager"),
                case("all_reduce", 8192),
                case("all_reduce", 16 << 20),
                case("all_gather", 1026),
                case("all_reduce", 65536),
            ),
            step=VERIFY,
            plan=Plan(replays=7, step_replays=2),
        ),
        job("empty", step=Step(name="nothing", calls=())),
        job("functions", functions=True),
        job("pairs", pairs=True),
        job("refused", settings={"NCCL_ALGO": "Tree"}, cases=(case("all_gather", 8192),)),
        job("proof", cases=(case("all_reduce", 8192),), proof_log="on"),
        job("library", cases=(case("all_reduce", 8192),), nccl_lib=path),
        job(
            "communicators",
            cases=(case("all_reduce", 16384),),
            communicators=({"NCCL_PROTO": "LL"}, {"NCCL_PROTO": "Simple"}, {"NCCL_PROTO": "LL"}),
        ),
        job("indivisible", cases=(case("all_gather", 1026), case("all_reduce", 1024))),
    ]
    jobs += [
        replace(job(f"skew-{delay}", step=VERIFY), skew=Skew(rank=1, delay_us=float(delay)))
        for delay in (50, 250, 1000)
    ]
    return jobs


DTYPES = ("bfloat16", "float16", "float32", "float64", "int8", "uint8", "int32", "int64")


def torch_nccl() -> str:
    from collbench.machine.probe import installed_nccl

    _, path = installed_nccl()
    assert path, "torch's NCCL is not a package of its own here"
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Run]]:
    folder = tmp_path_factory.mktemp("gpu")
    jobs = all_jobs()
    (folder / "jobs.json").write_text(json.dumps([to_plain(job) for job in jobs]))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2", str(LAUNCH_JOBS)),
            *(str(folder / "jobs.json"), str(folder / "runs.json")),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    found = json.loads((folder / "runs.json").read_text())
    return {
        job.job_id: [from_plain(Run, run) for run in parts]
        for job, parts in zip(jobs, found, strict=True)
    }


def one(runs: dict[str, list[Run]], name: str, outcome: str = "ok") -> Run:
    run = runs[name][0]
    assert run.outcome == outcome, run.reason
    return run


@pytest.mark.parametrize("name", ["collectives", "modes", "dtypes", "large"])
def test_every_case_is_timed_with_right_data(runs: dict[str, list[Run]], name: str) -> None:
    run = one(runs, name)
    for times in run.cases:
        assert times.error is None, times.case.key
        assert times.wrong == [0, 0], times.case.key
        assert len(times.times_us) == 2
        assert all(us > 1.0 for us in times.times_us[0]), times.case.key


def test_a_bare_loop_of_eager_calls_is_host_bound_and_a_graph_is_not(
    runs: dict[str, list[Run]],
) -> None:
    graph, eager, entry = one(runs, "modes").cases
    assert eager.enqueue_us is not None
    assert median(eager.enqueue_us) > 0.8 * median(eager.times_us[0])
    assert median(eager.times_us[0]) > 1.5 * median(graph.times_us[0])
    assert len(entry.times_us[0]) == Plan().entry_samples


def test_the_step_exposes_communication_and_its_own_data_are_right(
    runs: dict[str, list[Run]],
) -> None:
    step = one(runs, "step").step
    assert step is not None
    assert step.wrong == [0, 0]
    exposed = median(step.total_us[0]) - median(step.nocomm_us[0])
    assert 122 * 5 < exposed < 122 * 60


def test_rounds_time_what_was_asked_and_keep_the_order_of_the_cases(
    runs: dict[str, list[Run]],
) -> None:
    run = one(runs, "rounds")
    shape = [
        (times.case.size_bytes, times.case.mode, len(times.times_us[0]) if times.times_us else 0)
        for times in run.cases
    ]
    assert shape == [
        (8192, "eager", 7),
        (8192, "graph", 7),
        (16 << 20, "graph", 7),
        (1026, "graph", 0),
        (65536, "graph", 7),
    ]
    assert all(times.wrong == [0, 0] for times in run.cases if times.error is None)
    assert run.step is not None
    assert [len(us) for us in (*run.step.total_us, *run.step.nocomm_us)] == [2, 2, 2, 2]
    assert run.step.wrong == [0, 0]


def test_an_empty_step_has_next_to_no_overhead(runs: dict[str, list[Run]]) -> None:
    step = one(runs, "empty").step
    assert step is not None
    assert median(step.total_us[0]) < 10.0


@pytest.mark.parametrize("delay", [50, 250, 1000])
def test_injected_lateness_is_attributed_to_waiting(runs: dict[str, list[Run]], delay: int) -> None:
    from collbench.bench.table import attribution

    late = one(runs, f"skew-{delay}").step
    plain = one(runs, "step").step
    assert late is not None
    assert plain is not None
    transfer, waiting = attribution([late])
    undisturbed, _ = attribution([plain])
    assert transfer is not None
    assert waiting is not None
    assert undisturbed is not None
    assert waiting == pytest.approx(122 * delay, rel=0.1)
    assert transfer < 1.5 * undisturbed


def test_all_functions_of_a_server_answer_rightly(runs: dict[str, list[Run]]) -> None:
    functions = one(runs, "functions").functions
    assert len(functions) == 36
    assert set(functions.values()) == {"ok"}


def test_every_ordered_pair_has_latency_and_bandwidth(runs: dict[str, list[Run]]) -> None:
    pairs = one(runs, "pairs").pairs
    assert sorted((pair.src, pair.dst) for pair in pairs) == [(0, 1), (1, 0)]
    for pair in pairs:
        assert 1.0 < pair.latency_us < 100.0
        assert 1.0 < pair.bandwidth_gbs < 1000.0


def test_settings_the_library_rejects_are_refused_with_its_own_line(
    runs: dict[str, list[Run]],
) -> None:
    run = one(runs, "refused", "refused")
    assert "algorithm" in run.reason.lower()


def test_a_proof_run_carries_what_nccl_chose(runs: dict[str, list[Run]]) -> None:
    run = one(runs, "proof")
    chosen = [choice for choice in run.choices if choice.size_bytes == 8192]
    assert chosen
    assert chosen[0].algorithm
    assert chosen[0].protocol
    assert run.transports


def test_the_named_library_file_is_the_one_that_is_mapped(runs: dict[str, list[Run]]) -> None:
    run = one(runs, "library")
    assert all(
        rank.library_path and Path(rank.library_path).samefile(torch_nccl()) for rank in run.ranks
    )
    assert all(rank.library.startswith("NCCL 2.") for rank in run.ranks)


def test_communicators_of_one_process_read_their_settings_again(
    runs: dict[str, list[Run]],
) -> None:
    values = []
    for run in runs["communicators"]:
        assert run.outcome == "ok", run.reason
        values.append(median(run.cases[0].times_us[0]))
    first, simple, again = values
    assert simple > 1.5 * first
    assert again == pytest.approx(first, rel=0.1)


def test_a_size_that_cannot_be_split_costs_its_own_case_only(runs: dict[str, list[Run]]) -> None:
    split, whole = one(runs, "indivisible").cases
    assert split.error is not None
    assert "multiple" in split.error
    assert whole.error is None


def test_each_rank_says_where_it_ran_and_what_it_took(runs: dict[str, list[Run]]) -> None:
    for rank in one(runs, "step").ranks:
        assert rank.pci
        assert rank.bound != ""
        assert rank.memory_bytes is not None
        assert rank.memory_bytes > 1 << 20
        assert rank.seconds["communicator"] > 0
