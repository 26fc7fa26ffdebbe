"""The smoke of every function a server calls, and the probe of every pair of ranks."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from collbench.backends import Backend, Call, Span
from collbench.backends.pattern import ITEM_BYTES, Pattern, count_wrong
from collbench.job import PairTimes
from collbench.measure.host import HostClock
from collbench.measure.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from collbench.measure.device import DeviceClock

SMOKE_COLLECTIVES = (
    "broadcast",
    "reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "send_recv",
)
SMOKE_DTYPES = ("int64", "float32")
SMOKE_BYTES = (4, 64, 1024)
"""Bytes that each rank hands in; at least one element."""

_PING_PONGS = 50
_PAIR_WINDOWS = 7
_LATENCY_DTYPE = "int64"
_BANDWIDTH_DTYPE = "float32"


def smoke(backend: Backend) -> Iterator[tuple[str, str]]:
    """Run every function once per dtype and size; yield its key and ``ok`` or what was wrong.

    Every rank calls it and exhausts it.
    """
    for collective in SMOKE_COLLECTIVES:
        for dtype in SMOKE_DTYPES:
            for size in SMOKE_BYTES:
                shares = backend.nranks if collective in ("all_gather", "reduce_scatter") else 1
                size_bytes = max(size, ITEM_BYTES[dtype]) * shares
                slots = Slots(backend, collective, size_bytes, dtype, pool_bytes=0, uses=1)
                wrong = slots.check()
                yield (
                    f"{collective}/{dtype}/{size_bytes}",
                    "ok" if wrong == 0 else f"{wrong} wrong elements",
                )


def probe_pairs(
    backend: Backend,
    clock: HostClock | DeviceClock,
    *,
    between: Callable[[], None] = lambda: None,
) -> tuple[list[PairTimes], int]:
    """Time every ordered pair of ranks, one after the other, while the others are idle.

    Latency is half the round trip of 8 bytes. Bandwidth is that of large messages in one
    direction, by the receiver's clock, which knows when they have arrived.

    Args:
        backend: Every rank calls with its own.
        clock: How windows are timed.
        between: Called after each pair (writes the result so far).

    Returns:
        The pairs of which this rank is the receiver, and the wrong elements it received.
    """
    large = (16 << 20) if backend.clock == "device" else (1 << 20)
    messages = 10
    memory = backend.allocate(large)
    pattern = Pattern(_BANDWIDTH_DTYPE, backend.nranks)
    count = large // ITEM_BYTES[_BANDWIDTH_DTYPE]
    found: list[PairTimes] = []
    wrong = 0
    for src in range(backend.nranks):
        for dst in range(backend.nranks):
            if src == dst:
                continue
            role = {src: "src", dst: "dst"}.get(backend.rank, "idle")
            peer = dst if role == "src" else src
            latency = _round_trips(backend, clock, memory, role, peer)
            filler = pattern.of(src, 0, count) if role == "src" else b"\xff" * large
            backend.write(memory, filler)
            span = Span(memory, 0, count)
            call = _one_way(backend, _BANDWIDTH_DTYPE, span, role, peer)
            _run(call)
            windows = clock.timed(call * messages, _PAIR_WINDOWS)
            if role == "dst":
                seconds = median(windows) / messages * 1e-6
                wrong += count_wrong(backend.read(memory, large), pattern.of(src, 0, count), 4)
                found.append(
                    PairTimes(
                        src=src,
                        dst=dst,
                        latency_us=latency,
                        bandwidth_gbs=large / seconds / 1e9,
                    )
                )
            between()
    return found, wrong


def _round_trips(
    backend: Backend, clock: HostClock | DeviceClock, memory: object, role: str, peer: int
) -> float:
    span = Span(memory, 0, 1)
    there = _one_way(backend, _LATENCY_DTYPE, span, role, peer)
    back = _one_way(backend, _LATENCY_DTYPE, span, {"src": "dst", "dst": "src"}.get(role, ""), peer)
    _run(there + back)
    windows = clock.timed((there + back) * _PING_PONGS, _PAIR_WINDOWS)
    return median(windows) / (2 * _PING_PONGS) if windows else 0.0


def _one_way(backend: Backend, dtype: str, span: Span, role: str, peer: int) -> list[Call]:
    if role == "src":
        return [backend.prepare_send(dtype, span, peer)]
    return [backend.prepare_recv(dtype, span, peer)] if role == "dst" else []


def _run(calls: list[Call]) -> None:
    for call in calls:
        call()
