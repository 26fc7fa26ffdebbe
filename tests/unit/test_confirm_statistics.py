"""Paired statistics against enumeration, and the gate's every way out."""

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.confirm import statistics
from collbench.confirm.gate import Limits, decide
from collbench.job import Run

GAIN = [math.log(0.95 + 0.001 * i) for i in range(14)]
CALM = Limits(sd=0.004)


def sign_flips(logs: list[float]) -> float:
    """P(W+ <= observed) by trying every assignment of signs to the ranks."""
    ranks = [sorted(map(abs, logs)).index(abs(v)) + 1 for v in logs]
    seen = sum(r for r, v in zip(ranks, logs, strict=True) if v > 0)
    flips = itertools.product([0, 1], repeat=len(logs))
    sums = [sum(r for r, up in zip(ranks, flip, strict=True) if up) for flip in flips]
    return sum(s <= seen for s in sums) / len(sums)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-50, 50).filter(bool), min_size=3, max_size=9, unique_by=abs))
def test_the_level_is_the_smaller_of_the_two_exact_tests(values: list[int]) -> None:
    logs = [v / 100 for v in values]
    n, worse = len(logs), sum(v > 0 for v in logs)
    sign = sum(math.comb(n, k) for k in range(worse + 1)) / 2**n
    assert statistics.faster_p(logs) == pytest.approx(min(sign, sign_flips(logs)))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-0.2, 0.2), min_size=5, max_size=25))
def test_the_bound_excludes_zero_exactly_where_the_signed_rank_test_does(logs: list[float]) -> None:
    distinct = [v + i * 1e-9 for i, v in enumerate(logs)]
    if len({abs(v) for v in distinct}) < len(distinct) or 0 in distinct:
        return
    bound = statistics.upper_bound(distinct, 0.05)
    ranks = {abs(v): r for r, v in enumerate(sorted(distinct, key=abs), 1)}
    up = sum(ranks[abs(v)] for v in distinct if v > 0)
    level = float(statistics._signed_rank_counts(len(distinct))[: up + 1].sum())
    assert (bound < 0) == (level <= 0.05)


def test_too_few_pairs_bound_nothing() -> None:
    assert statistics.upper_bound([-0.1] * 3, 0.005) == math.inf
    assert statistics.upper_bound([], 0.005) == math.inf


def test_the_interval_holds_the_median_and_narrows_with_pairs() -> None:
    rng = random.Random(1)
    logs = [rng.gauss(-0.05, 0.02) for _ in range(60)]
    low, high = statistics.interval(logs)
    assert low < math.exp(statistics.median_log(logs)) < high
    few = statistics.interval(logs[:10])
    assert high - low < few[1] - few[0]


def test_drift_and_outliers_do_not_pass_for_noise() -> None:
    rng = random.Random(2)
    values = [100 * math.exp(0.001 * i + rng.gauss(0, 0.004)) for i in range(200)]
    for i in range(0, 200, 20):
        values[i] *= 1.3
    assert statistics.launch_sd(values) == pytest.approx(0.004, rel=0.35)


def test_pairs_grow_with_the_noise_between_floor_and_cap() -> None:
    counts = [statistics.pairs_for(sd, 0.03, floor=14, cap=40) for sd in (0.004, 0.02, 0.05)]
    assert counts[0] == 14
    assert 14 < counts[1] < 40
    assert counts[2] == 40
    assert statistics.visible_gain(0.05, 40, 0.02) > 0.04


def test_a_clear_gain_is_adopted() -> None:
    decision = decide(GAIN, {"a": [0.0] * 14}, [], CALM, last=False)
    assert (decision.adopt, decision.final, decision.reasons) == (True, True, ())


def test_a_gain_below_the_least_is_kept_out_early() -> None:
    logs = [math.log(0.99 + 0.0002 * i) for i in range(14)]
    decision = decide(logs, {}, [], CALM, last=False)
    assert (decision.adopt, decision.final) == (False, True)
    assert "at least 2.0 % is needed" in decision.reasons[0]


def test_half_the_noise_is_the_least_gain_on_a_noisy_machine() -> None:
    assert Limits(sd=0.06).gain == pytest.approx(0.03)
    assert Limits(sd=0.01).gain == pytest.approx(0.02)


def test_two_reversed_pairs_of_fourteen_ask_for_more() -> None:
    logs = [*GAIN[:12], 0.2, 0.3]
    assert not decide(logs, {}, [], CALM, last=False).final
    more = [*logs, *GAIN[:8]]
    assert decide(more, {}, [], CALM, last=False).adopt


def test_an_unsure_gain_at_the_last_look_keeps_the_default() -> None:
    rng = random.Random(3)
    logs = [rng.gauss(-0.03, 0.15) for _ in range(14)]
    decision = decide(logs, {}, [], Limits(sd=0.05), last=True)
    assert not decision.adopt
    assert decision.final


def test_a_guarded_size_slower_by_more_than_the_limit_blocks_a_gain() -> None:
    decision = decide(GAIN, {"all_reduce/8388608": [0.6] * 14}, [], CALM, last=False)
    assert (decision.adopt, decision.final, decision.blocked) == (False, True, True)
    assert "all_reduce/8388608 is 82.2 % slower" in decision.reasons[0]


def test_a_guarded_size_slower_within_its_noise_is_said_and_does_not_block() -> None:
    rng = random.Random(5)
    noisy = [0.035 + rng.gauss(0, 0.2) for _ in range(14)]
    noisy = [v - statistics.median_log(noisy) + 0.035 for v in noisy]
    decision = decide(GAIN, {"big": noisy}, [], CALM, last=True)
    assert decision.adopt
    assert "big" in decision.reasons[0]


def test_a_worse_tail_blocks_a_better_median() -> None:
    assert not decide(GAIN, {"p95": [0.1] * 14}, [], CALM, last=True).adopt


@pytest.mark.parametrize("outcome", ["hung", "died", "wrong", "refused"])
def test_one_bad_launch_of_the_candidate_ends_it(outcome: str) -> None:
    run = Run(job_id="x", settings={}, outcome=outcome, reason="rank 0 said so")  # type: ignore[arg-type]
    decision = decide(GAIN, {}, [run], CALM, last=False)
    assert (decision.adopt, decision.final, decision.blocked) == (False, True, True)
    assert outcome in decision.reasons[0]


def test_null_pairs_are_adopted_once_in_a_thousand_at_most() -> None:
    rng = random.Random(0)
    adopted = 0
    for _ in range(150):
        logs: list[float] = []
        for count in (14, 17, 21, 27, 34, 40):
            while len(logs) < count:
                pair = [rng.gauss(0, 0.05) + (rng.random() < 0.05) * 0.25 for _ in range(2)]
                logs.append(pair[0] - pair[1])
            decision = decide(logs, {}, [], Limits(sd=0.05), last=count == 40)
            if decision.final:
                adopted += decision.adopt
                break
    assert adopted <= 1
