"""The table of collectives agrees with nccl-tests, whose rows are the reference."""

import doctest

import pytest

from collbench import collectives
from collbench.collectives import COLLECTIVES, algbw, busbw, collective, itemsize
from collbench.errors import CollbenchError


def test_doctests_hold() -> None:
    assert doctest.testmod(collectives).failed == 0


@pytest.mark.parametrize(
    ("name", "nranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 8, 0.875),
        ("broadcast", 8, 1.0),
        ("reduce", 8, 1.0),
        ("send_recv", 2, 1.0),
    ],
)
def test_busbw_factor_is_that_of_nccl_tests(name: str, nranks: int, factor: float) -> None:
    assert COLLECTIVES[name].busbw_factor(nranks) == factor


def test_busbw_of_one_rank_is_zero() -> None:
    assert busbw(COLLECTIVES["all_reduce"], 1024, 10.0, 1) == 0.0


def test_counts_follow_the_size_column_of_nccl_tests() -> None:
    # superbench's recorded log: 8 ranks, float32 all_gather: size 1048576, count 32768 per rank.
    assert COLLECTIVES["all_gather"].counts(1_048_576, "float32", 8) == (32768, 262144)
    assert COLLECTIVES["reduce_scatter"].counts(1_048_576, "float32", 8) == (262144, 32768)
    assert COLLECTIVES["all_reduce"].counts(57344, "bfloat16", 8) == (28672, 28672)
    assert COLLECTIVES["send_recv"].counts(6, "bfloat16", 3) == (3, 3)


@pytest.mark.parametrize("size_bytes", [0, 2, 8, 8194])
def test_a_size_that_does_not_divide_is_refused_with_one_that_does(size_bytes: int) -> None:
    with pytest.raises(CollbenchError, match="multiples of 16 are") as raised:
        COLLECTIVES["all_gather"].counts(size_bytes, "float32", 4)
    assert int(raised.value.fix.split()[1]) % 16 == 0


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(CollbenchError, match="unknown collective 'alltoall'"):
        collective("alltoall")
    with pytest.raises(CollbenchError, match="unknown dtype 'bf16'") as raised:
        itemsize("bf16")
    assert "bfloat16" in raised.value.fix


@pytest.mark.parametrize("time_us", [0.0, -1.0])
def test_a_bandwidth_needs_a_positive_time(time_us: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        algbw(1024, time_us)


def test_no_ranks_is_an_error() -> None:
    with pytest.raises(ValueError, match="nranks"):
        COLLECTIVES["all_reduce"].busbw_factor(0)
