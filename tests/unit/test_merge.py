"""From what the ranks of a launch left to one run with a typed outcome."""

import json
from typing import Any

import pytest

from collbench.job import Case, Job, Outcome, RankCase, RankFacts, RankResult, Run, to_plain
from collbench.pool.merge import RankEnd, merge

SMALL = Case(collective="all_reduce", size_bytes=8192, dtype="float32", mode="eager")
LARGE = Case(collective="all_reduce", size_bytes=1 << 20, dtype="float32", mode="eager")


def left(rank: int, outcome: Outcome = "ok", reason: str = "", **fields: Any) -> RankEnd:
    """A rank that ended by itself and left a result."""
    result = RankResult(rank=rank, outcome=outcome, reason=reason, **fields)
    return RankEnd(text=json.dumps({"parts": [to_plain(result)]}))


def killed(rank: int, **fields: Any) -> RankEnd:
    """A rank that the pool ended in the middle of something."""
    end = left(rank, "hung", fields.pop("reason", "all_reduce/8192"), **fields)
    return RankEnd(text=end.text, signal=9, exit_code=None, killed=True)


def of(*ends: RankEnd, timed_out: bool = False, **job: Any) -> Run:
    made = Job(job_id="1", backend="mpi", nranks=len(ends), cases=(SMALL, LARGE), **job)
    (run,) = merge(made, ends, settings={"A": "1"}, timed_out=timed_out)
    return run


def timed(case: Case, *times: float, **fields: Any) -> RankCase:
    return RankCase(case=case, times_us=list(times), **fields)


def test_times_of_every_rank_stand_in_their_order() -> None:
    run = of(
        left(0, cases=(timed(SMALL, 1.0, 2.0), timed(LARGE, 9.0, wrong=0))),
        left(1, cases=(timed(SMALL, 3.0, 4.0), timed(LARGE, 8.0, wrong=2))),
    )
    assert (run.outcome, run.reason, run.failed_rank) == ("ok", "", None)
    assert run.settings == {"A": "1"}
    assert run.cases[0].times_us == [[1.0, 2.0], [3.0, 4.0]]
    assert run.cases[1].wrong == [0, 2]


def test_a_case_that_a_rank_did_not_finish_has_no_times() -> None:
    run = of(
        left(0, cases=(timed(SMALL, 1.0), timed(LARGE, 9.0))), killed(1, cases=(timed(SMALL, 3.0),))
    )
    assert [case.times_us for case in run.cases] == [[[1.0], [3.0]], []]
    assert run.cases[1].error == "not every rank finished this case"


@pytest.mark.parametrize(
    ("ends", "timed_out", "outcome", "rank", "words"),
    [
        ([left(0), left(1, "wrong", "3 wrong elements")], False, "wrong", 1, "3 wrong elements"),
        ([left(0), left(1, "refused", "no such value")], False, "refused", 1, "no such value"),
        (
            [left(0, "wrong", "3 wrong elements"), RankEnd(signal=11, exit_code=None)],
            *(False, "wrong", 0, "3 wrong elements"),
        ),
        (
            [killed(0), RankEnd(signal=11, exit_code=None, log_tail="stack smashed")],
            *(False, "died", 1, "ended by SIGSEGV: stack smashed"),
        ),
        ([killed(0), RankEnd(exit_code=3)], False, "died", 1, "without a result, exit code 3"),
        ([killed(0), RankEnd(signal=99, exit_code=None)], False, "died", 1, "signal 99"),
        # the rank that says it lost its partner is the echo of the one that died without a word
        (
            [left(0, "died", "connection closed by peer"), RankEnd(signal=11, exit_code=None)],
            *(False, "died", 1, "SIGSEGV"),
        ),
        ([killed(0), killed(1)], True, "hung", 0, "no answer within 60 s (all_reduce/8192)"),
        (
            [left(0, "died", "connection closed by peer"), killed(1)],
            *(True, "hung", 1, "no answer within 60 s"),
        ),
        ([left(0), RankEnd(text="{cut", exit_code=0)], False, "died", 1, "without a result"),
    ],
)
def test_the_outcome_names_the_rank_that_began_it(
    ends: list[RankEnd], timed_out: bool, outcome: str, rank: int, words: str
) -> None:
    run = of(*ends, timed_out=timed_out, deadline_s=60.0)
    assert (run.outcome, run.failed_rank) == (outcome, rank)
    assert run.reason.startswith(f"rank {rank}: ")
    assert words in run.reason


def test_a_step_counts_only_where_every_rank_ended_well() -> None:
    step = {"step_total_us": [5.0], "step_nocomm_us": [2.0], "step_wrong": 0}
    whole = of(left(0, **step), left(1, **step))
    assert whole.step is not None
    assert whole.step.total_us == [[5.0], [5.0]]
    assert of(left(0, **step), left(1)).step is None
    assert of(left(0, **step), left(1, "died", "x", **step)).step is None


def test_a_function_that_failed_on_one_rank_failed() -> None:
    good = {"broadcast/int64/4": "ok"}
    run = of(left(0, functions=good), left(1, functions={"broadcast/int64/4": "wrong"}))
    assert run.functions == {"broadcast/int64/4": "wrong"}


def test_each_communicator_is_a_run_with_its_own_settings() -> None:
    facts = RankFacts(rank=0, pid=1, host="node", device="cpu")
    parts = [
        RankResult(rank=0, outcome="ok", facts=facts, cases=(timed(SMALL, 1.0),)),
        RankResult(rank=0, outcome="refused", reason="no such value", facts=facts),
    ]
    job = Job(
        job_id="1", backend="nccl", nranks=1, cases=(SMALL,), communicators=({"B": "1"}, {"B": "2"})
    )
    end = RankEnd(text=json.dumps({"parts": to_plain(parts)}))
    one, two = merge(job, [end], settings={"A": "1"}, timed_out=False)
    assert (one.outcome, one.settings) == ("ok", {"A": "1", "B": "1"})
    assert (two.outcome, two.settings) == ("refused", {"A": "1", "B": "2"})
