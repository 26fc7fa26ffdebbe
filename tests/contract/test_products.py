"""The products of a step on the CPU: whose weights they read, and what they feed; needs torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from collbench.job import Step, StepCall
from tests.contract.replayed import Alone, Replayed

pytestmark = pytest.mark.dist

L2_BYTES = 8192
ATTENTION = ((4, 64, 16), (4, 16, 64))
FEED_FORWARD = ((4, 64, 32), (4, 32, 64))
BYTES = 4 * 64 * 4
"""A message of 4 tokens of hidden size 64, float32: what the last product writes."""


def weights_read(
    monkeypatch: pytest.MonkeyPatch, calls: tuple[StepCall, ...]
) -> tuple[list[int], int]:
    """Return where the first weight of every call of one replay lies, and the wrong elements."""
    import torch

    real, read = torch.mm, []

    def mm(operand: Any, weight: Any, *, out: Any) -> Any:
        read.append((weight.data_ptr(), tuple(weight.shape)))
        return real(operand, weight, out=out)

    monkeypatch.setattr(torch, "mm", mm)
    properties = SimpleNamespace(L2_cache_size=L2_BYTES)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    from collbench.measure.device_step import DeviceStep

    clock: Any = Replayed(Alone())
    step = DeviceStep(clock, Step(name="x", calls=calls), clock.plan, None)
    step.time(1)
    step.finish()
    replay = sum(call.count * len(call.compute) for call in calls)
    return [at for at, shape in read[-replay:] if shape[0] == 64], step.result.wrong


def calls(count: int, *products: tuple[tuple[int, int, int], ...]) -> tuple[StepCall, ...]:
    return tuple(
        StepCall(
            collective="all_reduce",
            size_bytes=BYTES,
            dtype="float32",
            count=count,
            compute=compute,
        )
        for compute in products
    )


def test_the_layers_of_a_model_find_none_of_their_weights_in_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attention and feed-forward in turn, each call with count 1, as a config's step has them."""
    layers = calls(1, *(ATTENTION, FEED_FORWARD) * 8)
    read, wrong = weights_read(monkeypatch, layers)
    assert wrong == 0
    # 8 KiB of weights a call in attention, 16 KiB in feed-forward; four caches are 32 KiB
    assert [len(set(read[::2])), len(set(read[1::2]))] == [4, 2]
    assert all(one != after for one, after in zip(read, read[2:], strict=False))


def test_a_call_with_a_count_rotates_as_many_sets_as_four_caches_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, wrong = weights_read(monkeypatch, calls(3, ATTENTION))
    assert (len(set(read)), wrong) == (3, 0)
    read, wrong = weights_read(monkeypatch, calls(10, ATTENTION))
    assert (len(set(read)), wrong) == (4, 0)
    assert read[0] == read[4] == read[8]
