"""Comparisons of records with planted truths: found where they are, not where they are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collbench.compare import compare, document, text
from collbench.errors import CollbenchError, Exit
from collbench.job import Plan, Skew, Step, StepCall
from collbench.record import RunRecord

Maker = Callable[..., RunRecord]
SMALL = "all_reduce/8192/bfloat16/graph"
LARGE = "all_reduce/1048576/bfloat16/graph"


def around(centre: float, n: int = 10, sd: float = 0.005, seed: int = 0) -> list[float]:
    return [float(v) for v in centre * np.random.default_rng(seed).lognormal(sigma=sd, size=n)]


def test_a_planted_slowdown_of_one_size_is_found_and_only_there(make_record: Maker) -> None:
    a = make_record({SMALL: around(10.0, seed=1), LARGE: around(60.0, seed=2)})
    b = make_record({SMALL: around(10.5, seed=3), LARGE: around(60.0, seed=4)})
    found = compare(a, b)
    assert [case.verdict for case in found.cases] == ["slower", "no_difference"]
    assert found.exit_code == Exit.FINDINGS
    assert found.tested == 2
    small = found.cases[0]
    assert small.ratio == pytest.approx(1.05, abs=0.01)
    assert small.interval is not None
    assert small.interval[0] < 1.05 < small.interval[1]


def test_faster_and_the_same_exit_0(make_record: Maker) -> None:
    a = make_record({SMALL: around(10.0, seed=1), LARGE: around(60.0, seed=2)})
    b = make_record({SMALL: around(9.0, seed=3), LARGE: around(60.0, seed=4)})
    found = compare(a, b)
    assert [case.verdict for case in found.cases] == ["faster", "no_difference"]
    assert found.exit_code == Exit.OK


@pytest.mark.parametrize("n", [1, 2, 3])
def test_too_few_launches_is_never_no_difference(make_record: Maker, n: int) -> None:
    a = make_record({SMALL: around(10.0, n=n)})
    b = make_record({SMALL: around(100.0, n=n)})
    found = compare(a, b)
    assert found.cases[0].verdict == "too_few_launches"
    assert found.cases[0].ratio == pytest.approx(10.0)
    assert found.exit_code == Exit.UNDECIDED
    assert document(found, "a", "b")["launches_needed"] == 4


def test_more_cases_need_more_launches_and_the_text_says_how_many(make_record: Maker) -> None:
    keys = [f"all_reduce/{1024 << i}/bfloat16/graph" for i in range(10)]
    a = make_record({key: around(10.0, n=5) for key in keys})
    b = make_record({key: around(20.0, n=5, seed=1) for key in keys})
    found = compare(a, b)
    assert {case.verdict for case in found.cases} == {"too_few_launches"}
    assert "--launches 6" in text(found, "a", "b")
    a = make_record({key: around(10.0, n=6) for key in keys})
    b = make_record({key: around(20.0, n=6, seed=1) for key in keys})
    assert {case.verdict for case in compare(a, b).cases} == {"slower"}


def test_a_difference_below_the_margin_is_none_and_the_margin_can_be_dropped(
    make_record: Maker,
) -> None:
    a = make_record({SMALL: around(10.0, sd=0.001)})
    b = make_record({SMALL: around(10.06, sd=0.001, seed=1)})
    assert compare(a, b).cases[0].verdict == "no_difference"
    assert compare(a, b, margin=0.0).cases[0].verdict == "slower"


def test_a_verdict_needs_the_interval_to_leave_out_1_as_well(make_record: Maker) -> None:
    a = make_record({SMALL: [10.9, 10.3, 8.8, 10.9, 10.5]})
    b = make_record({SMALL: [10.4, 11.7, 11.4, 11.3, 11.0]})
    for first, second in ((a, b), (b, a)):
        case = compare(first, second).cases[0]
        assert case.p is not None
        assert case.p <= 0.05
        assert case.interval is not None
        assert case.interval[0] <= 1 <= case.interval[1]
        assert case.verdict == "no_difference"


def test_the_step_is_compared_first_and_alone(make_record: Maker) -> None:
    a = make_record({SMALL: around(10.0)}, step=around(4300.0, seed=5))
    b = make_record({SMALL: around(10.0, seed=1)}, step=around(4500.0, seed=6))
    found = compare(a, b)
    assert found.cases[0].key == "step"
    assert found.cases[0].verdict == "slower"
    assert found.tested == 1


def test_interleaved_records_are_compared_in_pairs(make_record: Maker) -> None:
    drift = np.linspace(1.0, 1.6, 10)
    noise = np.array(around(1.0, sd=0.002))
    first = {SMALL: list(10 * drift)}
    second = {SMALL: list(10.4 * drift * noise)}
    alone = compare(make_record(first), make_record(second))
    assert not alone.paired
    assert alone.cases[0].verdict == "no_difference"
    pairs = compare(make_record(first, interleaved="x"), make_record(second, interleaved="x"))
    assert pairs.paired
    assert pairs.cases[0].verdict == "slower"
    other = compare(make_record(first, interleaved="x"), make_record(second, interleaved="y"))
    assert not other.paired
    said = "the median over pairs of interleaved launches"
    assert said in " ".join(text(pairs, "a", "b").split())
    assert said not in " ".join(text(other, "a", "b").split())


def test_a_pair_without_its_other_half_is_left_out(make_record: Maker) -> None:
    rising = [10.0 * 1.1**k for k in range(10)]  # any other partner shows in the ratio
    a = make_record({SMALL: rising}, interleaved="x")
    launches = list(a.launches)
    launches[3] = replace(launches[3], outcome="died", reason="rank 1: signal 9", cases=())
    cut = a.model_copy(update={"launches": launches})
    found = compare(a, cut)
    assert found.cases[0].launches == (9, 9)
    assert found.cases[0].ratio == 1.0
    assert found.cases[0].interval == (1.0, 1.0)
    assert any("died: rank 1" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("method", {"method": 2}),
        ("backend", {"backend": "gloo"}),
        ("machine", {"machine": {"host": "node-b"}}),
        ("driver", {"machine": {"driver": "570.0"}}),
        ("torch", {"machine": {"torch": "2.13"}}),
        ("nccl_conf", {"machine": {"nccl_conf": {"/etc/nccl.conf": "0" * 64}}}),
        ("cmdline", {"machine": {"cmdline": "iommu=pt"}}),
        ("cpu", {"machine": {"cpu": "other"}}),
        ("library", {"rank": {"library": "NCCL 2.29.2"}}),
        ("devices", {"rank": {"device": "other GPU"}}),
        ("gpus", {"rank": {"pci": "0000:41:00.0"}}),
        ("nodes", {"nranks": 1}),
        ("binding", {"rank": {"bound": "not_asked"}}),
    ],
)
def test_records_that_differ_in_a_key_are_not_comparable_and_it_is_named(
    make_record: Maker, key: str, change: dict[str, Any]
) -> None:
    machine = {"torch": "2.11", "cpu": "x", "cmdline": "quiet"}
    values = {SMALL: around(10.0)}
    a = make_record(values, machine=machine, rank={"pci": "0000:01:00.0"})
    if key == "nodes":
        a = make_record(values, rank={"pci": "0000:01:00.0"})
        b = a.model_copy(
            update={
                "launches": [
                    replace(r, ranks=(r.ranks[0], replace(r.ranks[1], host="node-z")))
                    for r in a.launches
                ]
            }
        )
    else:
        change = {
            **change,
            "machine": {**machine, **change.get("machine", {})},
            "rank": {"pci": "0000:01:00.0", **change.get("rank", {})},
        }
        b = make_record(values, **change)
    found = compare(a, b)
    assert key in [difference.key for difference in found.differs]
    assert {case.verdict for case in found.cases} == {"not_comparable"}
    assert found.cases[0].ratio is None
    assert found.exit_code == Exit.NOT_COMPARABLE
    assert f"--across {key}" in text(found, "a", "b")
    keys = [difference.key for difference in found.differs]
    accepted = compare(a, b, across=keys)
    assert accepted.cases[0].verdict == "no_difference"
    assert accepted.exit_code == Exit.OK


def test_another_number_of_ranks_is_not_comparable(make_record: Maker) -> None:
    found = compare(
        make_record({SMALL: around(10.0)}), make_record({SMALL: around(10.0)}, nranks=4)
    )
    assert "nranks" in [difference.key for difference in found.differs]


def test_plan_and_planted_skew_belong_to_the_keys(make_record: Maker) -> None:
    a = make_record({SMALL: around(10.0)})
    pool = a.model_copy(update={"job": replace(a.job, plan=Plan(pool_bytes=1 << 24))})
    late = a.model_copy(update={"job": replace(a.job, skew=Skew(rank=1, delay_us=50.0))})
    assert [d.key for d in compare(a, pool).differs] == ["plan"]
    assert [d.key for d in compare(a, late).differs] == ["skew"]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ("all_reduce/8192/float32/graph", "dtype"),
        ("all_reduce/8192/bfloat16/eager", "mode"),
        ("all_reduce/16384/bfloat16/graph", "only in A"),
    ],
)
def test_a_case_without_its_like_says_which_key_differs(
    make_record: Maker, other: str, why: str
) -> None:
    found = compare(
        make_record({SMALL: around(10.0), LARGE: around(60.0)}),
        make_record({other: around(10.0), LARGE: around(60.0)}),
    )
    verdicts = {case.key: (case.verdict, case.differs) for case in found.cases}
    assert verdicts[SMALL] == ("not_comparable", (why,))
    assert verdicts[LARGE][0] == "no_difference"
    assert found.exit_code == Exit.NOT_COMPARABLE
    if why == "only in A":
        common = compare(
            make_record({SMALL: around(10.0), LARGE: around(60.0)}),
            make_record({LARGE: around(60.0)}),
            across=["cases"],
        )
        assert [case.key for case in common.cases] == [LARGE]
        assert common.exit_code == Exit.OK


def test_not_comparable_wins_over_slower_and_slower_over_too_few(make_record: Maker) -> None:
    a = make_record({SMALL: around(10.0), LARGE: around(60.0, n=2)})
    b = make_record({SMALL: around(20.0), LARGE: around(60.0, n=2)})
    assert {c.verdict for c in compare(a, b).cases} == {"slower", "too_few_launches"}
    assert compare(a, b).exit_code == Exit.FINDINGS
    b = make_record({SMALL: around(20.0)})
    assert compare(a, b).exit_code == Exit.NOT_COMPARABLE


def test_wrong_data_are_not_compared(make_record: Maker) -> None:
    a = make_record({SMALL: around(10.0)})
    b = make_record({SMALL: around(5.0)}, wrong={SMALL: 3})
    found = compare(a, b)
    assert found.cases[0].differs == ("wrong data in B",)


def test_another_workload_makes_the_step_not_comparable(make_record: Maker) -> None:
    a = make_record({}, step=around(4300.0))
    calls = (StepCall(collective="all_reduce", size_bytes=4096, dtype="bfloat16", count=9),)
    b = a.model_copy(update={"job": replace(a.job, step=Step(name="t", calls=calls))})
    assert compare(a, b).cases[0].differs == ("workload",)


def test_settings_are_shown_and_do_not_forbid(make_record: Maker) -> None:
    a = make_record({SMALL: around(10.0)})
    b = make_record({SMALL: around(10.0)}, settings={"NCCL_MIN_NCHANNELS": "16"})
    found = compare(a, b)
    assert not found.differs
    assert "NCCL_MIN_NCHANNELS: unset -> 16" in text(found, "a", "b")


def test_a_key_that_one_record_lacks_is_a_warning(make_record: Maker) -> None:
    a = make_record({SMALL: around(10.0)}, machine={"torch": "2.11"})
    found = compare(a, make_record({SMALL: around(10.0)}))
    assert not found.differs
    assert any(w.startswith("torch: only one record") for w in found.warnings)


def test_noisy_launches_are_a_warning_with_the_remedy(make_record: Maker) -> None:
    quiet = make_record({SMALL: around(10.0, sd=0.01)})
    noisy = make_record({SMALL: around(10.0, sd=0.5), LARGE: around(60.0)})
    warnings = compare(quiet, noisy, across=["cases"]).warnings
    assert [w for w in warnings if "noisy" in w and w.startswith("B")]
    assert not [w for w in warnings if w.startswith("A")]
    assert "alternate" in warnings[-1]


def test_nothing_in_common_is_not_comparable(make_record: Maker) -> None:
    found = compare(make_record({}), make_record({}))
    assert found.exit_code == Exit.NOT_COMPARABLE
    assert "no case was timed" in text(found, "a", "b")


@pytest.mark.parametrize("margin", [-0.1, 1.0, float("nan")])
def test_an_absurd_margin_is_refused(make_record: Maker, margin: float) -> None:
    record = make_record({SMALL: around(10.0)})
    with pytest.raises(CollbenchError, match="--margin"):
        compare(record, record, margin=margin)


def test_an_unknown_key_is_refused_with_the_known_ones(make_record: Maker) -> None:
    record = make_record({SMALL: around(10.0)})
    with pytest.raises(CollbenchError, match="--across: unknown key 'nccl'") as raised:
        compare(record, record, across=["nccl"])
    assert "library" in raised.value.fix


def test_a_record_is_the_same_as_itself(make_record: Maker) -> None:
    record = make_record({SMALL: around(10.0)}, step=around(4000.0))
    found = compare(record, record)
    assert {(c.ratio, c.verdict) for c in found.cases} == {(1.0, "no_difference")}


@pytest.mark.slow
def test_equal_records_are_called_different_in_fewer_than_one_of_twenty(make_record: Maker) -> None:
    keys = [f"all_reduce/{1024 << i}/bfloat16/graph" for i in range(6)]
    alarms = 0
    for seed in range(100):
        a = make_record({k: around(10.0, seed=1000 * seed + i) for i, k in enumerate(keys)})
        b = make_record({k: around(10.0, seed=1000 * seed + 50 + i) for i, k in enumerate(keys)})
        alarms += any(c.verdict != "no_difference" for c in compare(a, b, margin=0.0).cases)
    assert alarms <= 9  # 100 studies at a level of 5 %: 9 or fewer in 97 of 100 such tests


def test_the_text_is_clean_of_what_a_record_brings(make_record: Maker) -> None:
    a = make_record({SMALL: around(10.0)})
    b = make_record(
        {SMALL: around(10.0)}, machine={"host": "x\x1b[31m\nrm"}, settings={"A": "\x07"}
    )
    shown = text(compare(a, b), "a", "b")
    assert "\x1b" not in shown
    assert "\x07" not in shown
