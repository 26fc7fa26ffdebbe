"""Figures of a record, from raw times whose answers are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from collbench.job import CaseTimes
from collbench.record import RunRecord
from collbench.results import curves, results

Maker = Callable[..., RunRecord]
KEY = "all_gather/8192/bfloat16/graph"


def with_times(record: RunRecord, times: list[list[float]], **more: object) -> RunRecord:
    """The record with other raw times of its first case in every launch."""
    runs = [
        replace(run, cases=(replace(run.cases[0], times_us=times, **more),))  # type: ignore[arg-type]
        for run in record.launches
    ]
    return record.model_copy(update={"launches": runs})


def test_launches_not_windows_make_the_median_and_the_interval(make_record: Maker) -> None:
    found = results(make_record({KEY: [10.0, 11.0, 30.0]}, windows=50)).cases[0]
    assert (found.p50_us, found.launches, found.values_us) == (11.0, 3, (10.0, 11.0, 30.0))
    assert found.ci_us == (10.0, 30.0)
    assert results(make_record({KEY: [10.0]})).cases[0].ci_us is None


def test_p99_needs_two_hundred_windows(make_record: Maker) -> None:
    assert results(make_record({KEY: [10.0, 10.0]}, windows=99)).cases[0].p99_us is None
    assert results(make_record({KEY: [10.0, 10.0]}, windows=100)).cases[0].p99_us == 10.0


def test_bandwidth_is_of_the_reduced_time(make_record: Maker) -> None:
    found = results(make_record({KEY: [4.0]}, nranks=4)).cases[0]
    assert found.algbw_gbs == pytest.approx(8192 / 4.0 / 1000)
    assert found.busbw_gbs == pytest.approx(8192 / 4.0 / 1000 * 3 / 4)


@pytest.mark.parametrize(
    ("backend", "mode", "value"),
    [("nccl", "graph", 20.0), ("nccl", "entry", 30.0), ("mpi", "eager", 30.0)],
)
def test_ranks_are_reduced_as_the_mode_and_the_backend_want(
    make_record: Maker, backend: str, mode: str, value: float
) -> None:
    key = f"all_reduce/8192/float32/{mode}"
    record = with_times(
        make_record({key: [1.0]}, nranks=3, backend=backend), [[10.0], [20.0], [30.0]]
    )
    found = results(record).cases[0]
    assert found.p50_us == value
    assert found.skew_us == 20.0


def test_skew_is_the_median_launch_s_not_the_worst(make_record: Maker) -> None:
    record = make_record({KEY: [10.0, 10.0, 10.0]})
    runs = [
        replace(run, cases=(replace(run.cases[0], times_us=[[10.0], [10.0 + late]]),))
        for run, late in zip(record.launches, (1.0, 2.0, 50.0), strict=True)
    ]
    assert results(record.model_copy(update={"launches": runs})).cases[0].skew_us == 2.0


def test_a_dead_launch_and_a_failed_case_are_told_and_the_rest_counts(make_record: Maker) -> None:
    record = make_record({KEY: [10.0, 11.0]})
    dead = replace(record.launches[1], outcome="died", reason="rank 1: signal 11")
    broken = CaseTimes(case=dead.cases[0].case, times_us=[], error="rank 1 has no times")
    dead = replace(dead, cases=(broken,))
    found = results(record.model_copy(update={"launches": [record.launches[0], dead]}))
    assert found.cases[0].values_us == (10.0,)
    assert found.failed == (
        ("launch 1", "died: rank 1: signal 11"),
        (KEY, "rank 1 has no times"),
    )


def test_a_case_that_one_rank_did_not_time_has_no_value(make_record: Maker) -> None:
    record = with_times(make_record({KEY: [10.0]}), [[10.0], []])
    assert results(record).cases == ()


def test_wrong_elements_are_counted_and_kept_out_of_predictions(make_record: Maker) -> None:
    record = make_record(
        {KEY: [10.0, 10.0], "all_gather/4096/bfloat16/graph": [8.0]}, wrong={KEY: 2}
    )
    found = results(record)
    assert found.cases[0].wrong == 4
    assert curves(found) == {"all_gather": [(4096, 8.0)]}


def test_host_bound_is_where_the_enqueue_takes_most_of_the_time(make_record: Maker) -> None:
    record = make_record({"all_reduce/8192/bfloat16/eager": [43.0]})
    assert results(with_times(record, [[43.0]] * 2, enqueue_us=[40.0, 41.0])).cases[0].host_bound
    assert not results(with_times(record, [[80.0]] * 2, enqueue_us=[40.0] * 2)).cases[0].host_bound
    assert not results(record).cases[0].host_bound


def test_exposed_communication_is_the_step_without_its_bare_self(make_record: Maker) -> None:
    step = results(make_record({}, step=[4300.0, 4400.0, 4310.0], nocomm=2200.0)).step
    assert step is not None
    assert (step.total_us, step.nocomm_us, step.exposed_us) == (4310.0, 2200.0, 2110.0)
    bare = results(make_record({}, step=[4300.0])).step
    assert bare is not None
    assert (bare.nocomm_us, bare.exposed_us) == (None, None)


def test_cases_stand_in_the_order_of_the_job(make_record: Maker) -> None:
    keys = [f"all_reduce/{size}/bfloat16/graph" for size in (1024, 64, 4096)]
    record = make_record({key: [1.0] for key in keys})
    shuffled = [replace(run, cases=run.cases[::-1]) for run in record.launches]
    found = results(record.model_copy(update={"launches": shuffled}))
    assert [case.case.key for case in found.cases] == keys
