"""bench without processes: what is asked, what is launched, what is printed and exported."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from rich.console import Console

from collbench.bench.launches import measure
from collbench.bench.options import bench_options
from collbench.bench.request import Asked, Request, ask
from collbench.bench.table import attribution, document, exit_code, print_report, to_csv
from collbench.errors import CollbenchError
from collbench.front import arguments_of
from collbench.job import (
    CaseTimes,
    Choice,
    Job,
    PairTimes,
    RankFacts,
    Run,
    Skew,
    StepTimes,
)
from collbench.record import RunRecord, dump, load, save

TEXTS = {
    "workload": "workload",
    "collectives": "collective",
    "sizes": "sizes",
    "modes": "mode",
    "dtypes": "dtype",
    "server": "server",
    "env": "env",
    "pool": "pool",
    "nccl_lib": "nccl-lib",
    "skew": "skew",
    "out": "out",
    "json_file": "json-file",
    "csv_file": "csv-file",
    "times_file": "times-file",
}
"""Field -> option; ``--sizes "$SIZES"`` of a variable that is not set is a mistake."""


def asked(backend: str = "nccl", nranks: int = 2, **given: Any) -> Asked:
    return ask(Request(**given), backend=backend, nranks=nranks)


def keys(found: Asked) -> list[str]:
    return [case.key for case in found.job.cases]


def test_bare_bench_on_gpus_times_the_verify_step_and_its_calls() -> None:
    found = asked()
    assert found.job.step is not None
    assert found.job.step.name == "verify-61x7168"
    assert keys(found) == [
        "all_reduce/57344/bfloat16/graph",
        "all_gather/1310720/bfloat16/graph",
    ]
    assert found.proof


def test_bare_bench_on_a_cpu_times_plain_sizes_as_float32() -> None:
    found = asked("mpi", 4)
    assert found.job.step is None
    assert keys(found)[0] == "all_reduce/1024/float32/eager"
    assert not found.proof


def test_sizes_collectives_dtypes_and_modes_multiply() -> None:
    found = asked(
        sizes="8K,64K", collectives="all_reduce,all_gather", dtypes="bfloat16", modes="graph,eager"
    )
    assert len(found.job.cases) == 8
    assert found.job.step is None


def test_a_workload_on_a_cpu_keeps_its_bytes_and_says_what_changed() -> None:
    found = asked("gloo", 2, workload="verify-61x7168")
    assert found.job.step is not None
    assert {call.dtype for call in found.job.step.calls} == {"float32"}
    assert found.job.step.calls[0].size_bytes == 57344
    assert any("no compute" in note for note in found.notes)


def test_pairs_alone_time_nothing_else() -> None:
    found = asked(pairs=True)
    assert found.job.pairs
    assert found.job.cases == ()
    assert found.job.step is None


def test_pool_chain_and_replays_reach_the_plan() -> None:
    plan = asked(sizes="8K", pool="4M", chain=7, replays=250).job.plan
    assert (plan.pool_bytes, plan.chain, plan.replays) == (4 << 20, 7, 250)


def test_a_long_bench_gets_the_time_it_needs_before_it_counts_as_hung() -> None:
    usual = asked(sizes="8K", replays=20).job.deadline_s
    assert asked(sizes="8K", replays=200, chain=1000).job.deadline_s == usual
    # on a CPU a window is 4 ms or one call
    long = asked("mpi", 2, sizes="8K", replays=100_000).job
    assert long.deadline_s > 100_000 * long.plan.batch_us / 1e6
    assert asked(sizes="1M", chain=10_000).job.deadline_s > usual
    step: dict[str, Any] = {"workload": "verify-61x7168", "modes": "step"}
    assert asked(**step, replays=2000).job.deadline_s > 2 * asked(**step).job.deadline_s


def test_settings_come_from_an_env_file_of_registered_names(tmp_path: Path) -> None:
    path = tmp_path / "x.env"
    path.write_text("NCCL_PROTO=LL\nCOLLBENCH_PROFILE=0123456789ab\n")
    assert asked(sizes="8K", env=str(path)).job.settings == {"NCCL_PROTO": "LL"}
    path.write_text("LD_PRELOAD=/x.so\n")
    with pytest.raises(CollbenchError, match="LD_PRELOAD"):
        asked(sizes="8K", env=str(path))


def test_skew_names_a_rank_and_a_delay() -> None:
    found = asked(workload="verify-61x7168", modes="step", skew="1:250")
    assert found.job.skew == Skew(rank=1, delay_us=250.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sizes": "0"}, ["--sizes", "'0'"]),
        ({"sizes": "-8"}, ["--sizes", "'-8'"]),
        ({"sizes": "1T"}, ["--sizes", "'1T'"]),
        ({"sizes": "999G"}, ["--sizes", "'999G'"]),
        ({"sizes": "8K", "collectives": "all_reduce,alltoall"}, ["--collective", "alltoall"]),
        ({"sizes": "8K", "modes": "graph,fast"}, ["--mode", "fast"]),
        ({"sizes": "8K", "dtypes": "bf8"}, ["--dtype", "bf8"]),
        ({"sizes": "7", "dtypes": "bfloat16"}, ["7 bytes", "bfloat16"]),
        ({"sizes": "8K", "pool": "x"}, ["--pool", "'x'"]),
        ({"sizes": "8K", "env": "/nowhere/x.env"}, ["/nowhere/x.env"]),
        ({"sizes": "8K", "nccl_lib": "/nowhere/libnccl.so.2"}, ["--nccl-lib", "/nowhere"]),
        ({"batch": 4, "sizes": "8K"}, ["--batch", "--workload"]),
        ({"workload": "verify-61x7168", "skew": "2:50"}, ["--skew", "'2:50'"]),
        ({"workload": "verify-61x7168", "skew": "1"}, ["--skew", "'1'"]),
        ({"workload": "verify-61x7168", "skew": "0:nan"}, ["--skew"]),
        ({"sizes": "8K", "skew": "0:50"}, ["--skew", "step"]),
        ({"workload": "/nowhere/config.json"}, ["/nowhere/config.json"]),
        *(({name: ""}, [f"--{option}: empty"]) for name, option in TEXTS.items()),
    ],
)
def test_a_wrong_value_is_named_with_its_option(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(CollbenchError) as caught:
        asked(**given)
    assert caught.value.code == 2
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sizes": "8K", "modes": "graph"}, ["graph", "mpi", "eager"]),
        ({"sizes": "8K", "dtypes": "bfloat16"}, ["mpi", "bfloat16", "float32"]),
        ({"sizes": "8K", "nccl_lib": "/bin/sh"}, ["--nccl-lib", "mpi"]),
    ],
)
def test_what_mpi_cannot_do_is_said_before_anything_starts(
    given: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(CollbenchError) as caught:
        asked("mpi", 2, **given)
    assert all(word in str(caught.value) for word in words)


def test_a_command_line_survives_the_front_door() -> None:
    seen: list[Any] = []

    @click.command()
    @click.option("--nproc-per-node", type=int)
    @bench_options
    @click.pass_context
    def command(context: click.Context, /, **given: Any) -> None:
        seen.append(arguments_of(context, without=("nproc_per_node",)))
        given.pop("nproc_per_node")
        seen.append(given)

    line = "--sizes 8K,1M --mode step --launches 3 --pairs --no-proof --nproc-per-node 4 --json"
    command.main(line.split(), standalone_mode=False)
    command.main(seen[0], standalone_mode=False)
    assert seen[1] == seen[3]
    assert seen[0].count("--no-proof") == 1
    assert "--nproc-per-node" not in seen[0]


# Launches


class FakeLauncher:
    """Answers launches from a function; keeps the jobs."""

    def __init__(self, answer: Callable[[int, Job], Run]) -> None:
        self.answer = answer
        self.jobs: list[Job] = []

    def launch(self, job: Job, *, env_file: Path | None = None) -> Run:
        self.jobs.append(job)
        return self.answer(len(self.jobs) - 1, job)


FACTS = tuple(
    RankFacts(
        rank=rank,
        pid=1,
        host="h",
        device="NVIDIA H200",
        library="NCCL 2.28.9",
        library_path="/x/libnccl.so.2",
        memory_bytes=(100 + rank) << 20,
    )
    for rank in range(2)
)


def good(number: int, job: Job) -> Run:
    base = 10.0 + number
    return Run(
        job_id=job.job_id,
        settings=job.settings,
        outcome="ok",
        cases=tuple(
            CaseTimes(
                case=case,
                times_us=[[base, base + 0.5, base + 0.1], [base, base + 0.7, base + 0.1]],
                wrong=[0, 0],
                enqueue_us=[base, base] if case.mode == "eager" else None,
                chain=100,
            )
            for case in job.cases
        ),
        step=StepTimes(
            total_us=[[4000.0] * 3, [4000.0] * 3], nocomm_us=[[2000.0] * 3, [2000.0] * 3]
        )
        if job.step
        else None,
        ranks=FACTS,
        choices=(
            Choice(
                collective="all_reduce",
                size_bytes=8192,
                algorithm="ring",
                protocol="ll",
                channels="0..3",
            ),
        )
        if job.proof_log
        else (),
        pairs=(PairTimes(src=0, dst=1, latency_us=5.0, bandwidth_gbs=20.0),) if job.pairs else (),
    )


def test_each_launch_is_one_and_the_proof_run_is_another_without_times() -> None:
    launcher = FakeLauncher(good)
    record = measure(asked(sizes="8K", launches=3), launcher)
    assert len(record.launches) == 3
    assert [job.proof_log for job in launcher.jobs] == [None, None, None, "on"]
    assert launcher.jobs[3].plan.replays == 1
    assert record.launches[0].choices[0].algorithm == "ring"
    assert record.launches[0].cases[0].times_us[0][0] == 10.0
    assert record.machine.library == "NCCL 2.28.9"


def test_memory_of_the_default_is_taken_where_settings_are_timed(tmp_path: Path) -> None:
    (tmp_path / "x.env").write_text("NCCL_MIN_NCHANNELS=16\n")
    launcher = FakeLauncher(good)
    record = measure(asked(sizes="8K", env=str(tmp_path / "x.env"), proof=False), launcher)
    assert [job.settings for job in launcher.jobs] == [{"NCCL_MIN_NCHANNELS": "16"}, {}]
    assert record.memory_default_bytes == 101 << 20


def test_a_case_that_kills_its_rank_costs_itself_and_the_rest_is_timed() -> None:
    def deadly(number: int, job: Job) -> Run:
        fatal = next((i for i, c in enumerate(job.cases) if c.size_bytes == 16384), None)
        if fatal is None:
            return good(number, job)
        done = good(number, replace(job, cases=job.cases[:fatal], step=None))
        return replace(done, outcome="died", reason="rank 1: ended by SIGSEGV", failed_rank=1)

    launcher = FakeLauncher(deadly)
    record = measure(asked(sizes="8K,16K,32K,64K", proof=False), launcher)
    shown = document(record, "r.json")
    assert [case["size_bytes"] for case in shown["cases"]] == [8192, 32768, 65536]
    assert shown["exit_code"] == 1
    assert any("SIGSEGV" in failed["why"] for failed in shown["failed"])
    assert len(launcher.jobs) == 2


def test_a_launch_that_dies_before_any_case_ends_the_retries() -> None:
    def dead(number: int, job: Job) -> Run:
        return Run(job_id="x", settings={}, outcome="died", reason="rank 0: no device")

    launcher = FakeLauncher(dead)
    record = measure(asked(sizes="8K,16K,32K", launches=2), launcher)
    assert len(launcher.jobs) <= 2 * 3
    assert exit_code(record) == 1
    assert document(record, None)["cases"] == []


# Output


def record_of(**given: Any) -> RunRecord:
    return measure(asked(**given), FakeLauncher(good))


def printed(record: RunRecord) -> str:
    out = io.StringIO()
    print_report(record, "results/x.json", Console(file=out, width=80))
    return out.getvalue()


def test_the_table_fits_80_columns_and_is_plain_when_piped() -> None:
    text = printed(
        record_of(
            sizes="1K,64K,256M",
            collectives="all_reduce,reduce_scatter",
            modes="graph,eager",
            launches=3,
            pairs=True,
        )
    )
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.isascii()
    assert "reduce_scatter, bfloat16, eager" in text
    assert "host-bound" in text
    assert "NCCL chose ring/ll channels 0..3 for all_reduce 8 KiB" in text


@pytest.mark.parametrize(
    ("launches", "said"),
    [
        (1, None),
        (2, "2 launches: the interval is a 50% one at best; 6 make it 95 %"),
        (5, "5 launches: the interval is a 94% one at best; 6 make it 95 %"),
        (6, None),
    ],
)
def test_an_interval_of_few_launches_is_not_called_a_95_per_cent_one(
    launches: int, said: str | None
) -> None:
    lines = printed(record_of(sizes="8K", launches=launches)).splitlines()
    assert [line for line in lines if "at best" in line] == ([said] if said else [])


def test_control_characters_of_a_log_do_not_reach_the_terminal() -> None:
    record = record_of(sizes="8K", proof=False)
    evil = record.model_copy(update={"warnings": ["\x1b]0;owned\x07 careful"]})
    assert "\x1b" not in printed(evil)
    assert "careful" in printed(evil)


def test_the_document_has_the_fields_others_read() -> None:
    shown = json.loads(json.dumps(document(record_of(launches=2), "results/x.json")))
    assert {"schema", "command", "exit_code", "cases", "step", "record"} <= set(shown)
    assert set(shown["cases"][0]) >= {
        "collective", "size_bytes", "dtype", "mode", "nranks", "launches", "p50_us", "p95_us",
        "p99_us", "ci_us", "algbw_gbs", "busbw_gbs", "skew_us", "wrong",
    }  # fmt: skip
    assert shown["step"]["exposed_us"] == 2000.0
    assert shown["cases"][0]["p99_us"] is None
    assert shown["cases"][0]["ci_us"] is not None
    assert document(record_of(), None)["cases"][0]["ci_us"] is None


def test_wrong_data_decide_the_exit_code() -> None:
    record = record_of(sizes="8K")
    bad = replace(record.launches[0], outcome="wrong", reason="rank 0: 3 wrong elements")
    assert exit_code(record.model_copy(update={"launches": [bad]})) == 4
    assert exit_code(record) == 0


def test_csv_has_one_row_a_case_and_numbers_as_they_are() -> None:
    record = record_of(sizes="8K,64K", launches=2)
    rows = list(csv.DictReader(io.StringIO(to_csv(record))))
    assert [int(row["size_bytes"]) for row in rows] == [8192, 65536]
    assert float(rows[0]["p50_us"]) == document(record, None)["cases"][0]["p50_us"]
    assert float(rows[0]["ci_low_us"]) <= float(rows[0]["ci_high_us"])


def test_waiting_is_told_from_transfer_by_the_rank_that_waits_least() -> None:
    step = StepTimes(total_us=[[1000.0], [1000.0]], nocomm_us=[[200.0], [700.0]])
    assert attribution([step]) == (300.0, 500.0)
    assert attribution([StepTimes(total_us=[[1.0]], nocomm_us=[])]) == (None, None)


def test_a_record_of_bench_survives_writing_and_reading(tmp_path: Path) -> None:
    record = record_of(launches=2, pairs=True)
    save(tmp_path / "r.json", record)
    again = load(tmp_path / "r.json", RunRecord)
    assert document(again, None) == document(record, None)
    assert dump(again) == dump(record)
