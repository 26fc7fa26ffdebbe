"""The test data: exact in every dtype, different per rank and element."""

import array
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.backends.pattern import (
    ITEM_BYTES,
    PERIOD,
    Pattern,
    count_wrong,
    encode,
    largest_value,
    values_of,
)


def decode(dtype: str, data: bytes) -> list[float]:
    if dtype == "bfloat16":
        wide = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
        return list(struct.unpack(f"<{len(wide) // 4}f", wide))
    code = {"float16": "e", "float32": "f", "float64": "d", "int8": "b", "uint8": "B"}
    code |= {"int32": "i", "int64": "q"}
    return list(struct.unpack(f"={len(data) // ITEM_BYTES[dtype]}{code[dtype]}", data))


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES))
@pytest.mark.parametrize("nranks", [1, 2, 3, 8, 64])
def test_the_sum_over_ranks_is_exact(dtype: str, nranks: int) -> None:
    if largest_value(dtype, nranks) == 0:
        pytest.skip("cannot be checked with so many ranks")
    pattern = Pattern(dtype, nranks)
    ranks = [decode(dtype, pattern.of(rank, 0, PERIOD)) for rank in range(nranks)]
    total = decode(dtype, pattern.total(0, PERIOD))
    assert [sum(column) for column in zip(*ranks, strict=True)] == total


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_ranks_and_shifted_elements_differ(dtype: str) -> None:
    pattern = Pattern(dtype, 8)
    first = pattern.of(0, 0, 4096)
    for rank in range(1, 8):
        assert pattern.of(rank, 0, 4096) != first
    for shift in (1 << k for k in range(21)):
        assert pattern.of(0, shift, 4096) != first
        assert pattern.total(shift, 4096) != pattern.total(0, 4096)


@given(start=st.integers(0, 10**9), count=st.integers(0, 3000), cut=st.integers(0, 3000))
def test_a_part_of_the_data_is_the_data_of_the_part(start: int, count: int, cut: int) -> None:
    pattern = Pattern("float32", 2)
    cut = min(cut, count)
    whole = pattern.of(1, start, count)
    assert whole == pattern.of(1, start, cut) + pattern.of(1, start + cut, count - cut)
    assert len(whole) == 4 * count


def test_bfloat16_is_the_upper_half_of_float32() -> None:
    floats = array.array("f", range(257)).tobytes()
    halves = b"".join(floats[i + 2 : i + 4] for i in range(0, len(floats), 4))
    assert encode("bfloat16", list(range(257))) == halves


@given(st.lists(st.integers(0, 255), min_size=1, max_size=50), st.data())
def test_wrong_elements_are_counted_not_wrong_bytes(values: list[int], data: st.DataObject) -> None:
    want = encode("int32", values)
    hit = data.draw(st.sets(st.integers(0, len(values) - 1)))
    got = bytearray(want)
    for index in hit:
        got[4 * index] ^= 0xFF
        got[4 * index + 3] ^= 0x0F
    assert count_wrong(bytes(got), want, 4) == len(hit)


def test_values_are_spread_over_the_whole_range() -> None:
    assert set(values_of(3, 31)) == set(range(32))
