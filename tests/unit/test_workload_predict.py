"""Predicted communication and jumps, on curves whose answers are known."""

import doctest
import math
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.workload import load, predict, server_args
from collbench.workload.predict import communication, draft_table, jumps, latency

H200 = [
    (8192, 10.39),
    (14336, 12.76),
    (57344, 14.96),
    (262144, 34.97),
    (1048576, 61.78),
    (8388608, 310.18),
]


@pytest.mark.parametrize("module", [predict, server_args])
def test_doctests_hold(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


@settings(deadline=None)
@given(st.floats(min_value=0.1, max_value=1.5), st.floats(min_value=1, max_value=100))
def test_a_power_law_is_interpolated_exactly(power: float, scale: float) -> None:
    curve = [(size, scale * size**power) for size in (1024, 8192, 1 << 20)]
    assert latency(curve, 3000) == pytest.approx(scale * 3000**power)


@pytest.mark.parametrize("size", [1, 8191, 8388609])
def test_nothing_is_extrapolated(size: int) -> None:
    assert latency(H200, size) is None
    assert latency([], size) is None


def test_measured_sizes_are_returned_as_measured() -> None:
    assert [latency(H200, size) for size, _ in H200] == [time for _, time in H200]


def test_a_flat_curve_that_starts_to_grow_has_one_jump() -> None:
    assert [(j.low_bytes, j.kind) for j in jumps(H200)] == [(57344, "steeper")]


def test_a_larger_size_that_is_faster_is_a_jump() -> None:
    # 8 GPUs, published: 512 KiB 156.1, 1 MiB 131.5.
    curve = [(262144, 84.8), (524288, 156.1), (1048576, 131.5), (4194304, 345.5)]
    assert [(j.low_bytes, j.kind) for j in jumps(curve)] == [
        (262144, "steeper"),
        (524288, "larger_is_faster"),
        (1048576, "steeper"),
    ]


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0])
def test_a_steady_curve_has_no_jump_but_its_start(power: float) -> None:
    curve = [(1 << i, 10.0 * 2.0 ** (power * i)) for i in range(10, 20)]
    assert [j.low_bytes for j in jumps(curve)] == ([1024] if power == 1.0 else [])


def test_communication_is_count_times_latency() -> None:
    made = load("verify-61x7168")
    curves = {"all_reduce": H200, "all_gather": [(1310720, 46.96)]}
    total, missing = communication(made, curves)
    assert missing == []
    assert total == pytest.approx(122 * 14.96 + 46.96)
    total, missing = communication(made, {"all_reduce": H200})
    assert missing == [("all_gather", 1310720)]
    assert total == pytest.approx(122 * 14.96)


def test_the_draft_table_names_the_row_that_crosses_the_jump() -> None:
    curves = {"all_reduce": H200, "all_gather": [(1024, 5.0), (1 << 24, 500.0)]}
    rows = draft_table(load("61x7168", tp=2), curves)
    assert [row.draft_tokens for row in rows] == list(range(1, 10))
    assert [row.payload_bytes for row in rows] == [14336 * d for d in range(1, 10)]
    assert [row.draft_tokens for row in rows if row.crossed] == [5]
    assert all(row.comm_us is not None and row.comm_us == row.at_least_us for row in rows)
    assert rows[3].per_token_us == pytest.approx((rows[3].comm_us or math.nan) / 4)


def test_the_draft_table_says_what_was_not_measured() -> None:
    curves = {"all_reduce": [(14336, 10.0), (57344, 14.0)]}
    rows = draft_table(load("61x7168", tp=2), curves)
    assert rows[0].comm_us is None
    assert rows[0].at_least_us == pytest.approx(123 * 10.0)
    assert rows[8].at_least_us is None
    assert ("all_reduce", 9 * 14336) in rows[8].not_measured


def test_a_batch_above_the_graphs_is_eager_in_its_rows() -> None:
    rows = draft_table(load("61x7168", tp=8, batch=100, server="vllm"), {})
    assert [row.eager for row in rows] == [False] * 5 + [True] * 4  # 512 tokens at most
    assert all(row.comm_us is None for row in rows)


def test_the_draft_model_is_in_every_row() -> None:
    curves = {
        "all_reduce": [(1024, 10.0), (1 << 30, 10.0)],
        "all_gather": [(1024, 5.0), (1 << 30, 5.0)],
    }
    alone = draft_table(load("61x7168", tp=8), curves)
    both = draft_table(load("61x7168", tp=8, draft="mtp"), curves)
    more = [(b.comm_us or 0) - (a.comm_us or 0) for a, b in zip(alone, both, strict=True)]
    assert more == pytest.approx([max(0, d - 1) * (3 * 10.0 + 5.0) for d in range(1, 10)])


def test_a_fixed_step_has_no_draft_table() -> None:
    with pytest.raises(ValueError, match="made from a model"):
        draft_table(load("verify-61x7168"), {})
