"""Integer test data: different per rank and element, sums exact in the dtype.

Standard library only. Both sides of a check are bytes, so one comparison (``memcmp``) decides, on
the host, without a kernel or an array library, which an MPI rank has no time to import.
"""

from __future__ import annotations

import struct

PERIOD = 1021
"""Elements after which the data repeat. Prime, so that no power-of-two offset maps onto itself."""

_LARGEST_EXACT = {
    "bfloat16": 1 << 8,
    "float16": 1 << 11,
    "float32": 1 << 24,
    "float64": 1 << 53,
    "int8": 127,
    "uint8": 255,
    "int32": 1 << 30,
    "int64": 1 << 62,
}
_FORMAT = {
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "int8": "b",
    "uint8": "B",
    "int32": "i",
    "int64": "q",
}
ITEM_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "int64": 8,
}
"""Bytes of one element, for every dtype that any backend knows."""


def encode(dtype: str, values: list[int]) -> bytes:
    """Return small integers as the bytes of `dtype`, in the machine's byte order.

    bfloat16 is the upper half of a float32, which is exact up to 256.
    """
    if dtype == "bfloat16":
        wide = struct.pack(f"<{len(values)}f", *values)
        narrow = bytearray(2 * len(values))
        narrow[0::2], narrow[1::2] = wide[2::4], wide[3::4]
        return bytes(narrow)
    return struct.pack(f"={len(values)}{_FORMAT[dtype]}", *values)


def largest_value(dtype: str, nranks: int) -> int:
    """Return the largest element, so that the sum over all ranks is exact in `dtype`.

    Zero where there are too many ranks for the dtype to be checked.
    """
    return min(31, _LARGEST_EXACT[dtype] // nranks)


def values_of(rank: int, largest: int) -> list[int]:
    """Return one period of a rank's elements, each from 0 to `largest`."""
    out = []
    for index in range(PERIOD):
        word = (index * 2654435761 + (rank + 1) * 0x9E3779B1) & 0xFFFFFFFF
        word = ((word ^ word >> 15) * 2246822519) & 0xFFFFFFFF
        out.append((word ^ word >> 13) % (largest + 1))
    return out


class Pattern:
    """The data of every rank of a group, and their sum, as bytes of one dtype."""

    def __init__(self, dtype: str, nranks: int) -> None:
        self.item_bytes = ITEM_BYTES[dtype]
        largest = largest_value(dtype, nranks)
        per_rank = [values_of(rank, largest) for rank in range(nranks)]
        self._ranks = [encode(dtype, values) for values in per_rank]
        self._sum = encode(dtype, [sum(column) for column in zip(*per_rank, strict=True)])

    def of(self, rank: int, start: int, count: int) -> bytearray:
        """Return `count` elements of `rank`, from element `start` on."""
        return self._stretch(self._ranks[rank], start, count)

    def total(self, start: int, count: int) -> bytearray:
        """Return the sum over all ranks of the same elements."""
        return self._stretch(self._sum, start, count)

    def _stretch(self, period: bytes, start: int, count: int) -> bytearray:
        first = start % PERIOD * self.item_bytes
        length = count * self.item_bytes
        # Made once and cut in place: a message may be 64 MiB, and every copy of it counts.
        stretch = bytearray(period[first:] + period[:first]) * (length // len(period) + 1)
        del stretch[length:]
        return stretch


def count_wrong(got: bytes | memoryview, want: bytearray, item_bytes: int) -> int:
    """Return how many elements differ."""
    # In this order it is one memcmp; a memoryview on the left would compare item by item.
    if want == got:  # type: ignore[comparison-overlap]
        return 0
    # Only after a fault: the array library is worth its import time when millions are compared.
    import numpy as np

    shape = (-1, item_bytes)
    differs = np.frombuffer(got, np.uint8).reshape(shape) != np.frombuffer(want, np.uint8).reshape(
        shape
    )
    return int(differs.any(axis=1).sum())
