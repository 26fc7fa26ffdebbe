"""The step: the whole sequence of collectives, with the model's matrix products between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collbench.backends import Backend, Call
from collbench.job import Plan, Skew, Step, StepCall
from collbench.measure.host import HostClock, busy_wait
from collbench.measure.slots import Slots

if TYPE_CHECKING:
    from collbench.measure.device import DeviceClock
    from collbench.measure.products import Products


@dataclass(slots=True)
class StepResult:
    """One rank's share of the step."""

    total_us: list[float]
    nocomm_us: list[float]
    wrong: int


@dataclass(slots=True)
class _Kind:
    """Calls of a step that share their messages (and their weights)."""

    slots: Slots
    uses: int
    products: Products | None = None
    """Set where the compute in front of the call writes its input."""


def measure_step(
    backend: Backend,
    clock: HostClock | DeviceClock,
    step: Step,
    plan: Plan,
    skew: Skew | None,
) -> StepResult:
    """Time the step and the same without its collectives; check the data before and after.

    Every rank calls it. On a device the step is one captured graph, and what its own products feed
    into its collectives is checked on the timed graph itself. On the host the sequence is run call
    by call, without compute.

    Raises:
        Unsupported: a call cannot be done by this backend; every rank raises alike.
    """
    kinds = _kinds(backend, step, plan)
    delay = skew.delay_us if skew is not None and skew.rank == backend.rank else 0.0
    if isinstance(clock, HostClock):
        return _on_host(clock, step, kinds, busy_wait(delay) if delay else None, skew is not None)
    return _on_device(clock, step, kinds, clock.spinner(delay) if delay else None)


def _key(call: StepCall) -> tuple[object, ...]:
    return (call.collective, call.size_bytes, call.dtype, call.compute)


def _kinds(backend: Backend, step: Step, plan: Plan) -> dict[tuple[object, ...], _Kind]:
    uses: dict[tuple[object, ...], int] = {}
    for call in step.calls:
        uses[_key(call)] = uses.get(_key(call), 0) + call.count
    kinds = {}
    for call in step.calls:
        if _key(call) not in kinds:
            slots = Slots(
                backend,
                call.collective,
                call.size_bytes,
                call.dtype,
                pool_bytes=plan.pool_bytes,
                uses=uses[_key(call)],
            )
            kinds[_key(call)] = _Kind(slots, uses[_key(call)])
    return kinds


def _on_host(
    clock: HostClock,
    step: Step,
    kinds: dict[tuple[object, ...], _Kind],
    spin: Call | None,
    skewed: bool,
) -> StepResult:
    wrong = sum(kind.slots.check() for kind in kinds.values())
    for kind in kinds.values():
        kind.slots.clear()
    sequence: list[Call] = []
    idle: list[Call] = []
    used: dict[tuple[object, ...], int] = {}
    for call in step.calls:
        calls = kinds[_key(call)].slots.calls
        for _ in range(call.count):
            index = used.get(_key(call), 0)
            used[_key(call)] = index + 1
            if spin is not None:
                sequence.append(spin)
                idle.append(spin)
            sequence.append(calls[index % len(calls)])
    total = clock.step(sequence).times_us
    nocomm = clock.timed(idle, clock.plan.step_replays) if skewed else []
    wrong += sum(kind.slots.check() for kind in kinds.values())
    return StepResult(total, nocomm, wrong)


def _on_device(
    clock: DeviceClock,
    step: Step,
    kinds: dict[tuple[object, ...], _Kind],
    spin: Call | None,
) -> StepResult:
    from collbench.measure.products import Products

    computes: dict[tuple[object, ...], Products] = {}
    wrong = 0
    with clock.on_stream():
        for call in step.calls:
            key = _key(call)
            if call.compute and key not in computes:
                kind, device = kinds[key], clock.backend.torch_device
                computes[key] = Products(device, call, kind.slots, uses=kind.uses)
                kind.products = computes[key] if computes[key].feeds else None
        wrong += _check_unfed(kinds)
        clock.backend.drain()
        for key, kind in kinds.items():
            if key in computes:
                computes[key].run(0)
            kind.slots.calls[0]()
    graphs = [
        clock.capture(_body(step, kinds, computes, spin, collectives=collectives))
        for collectives in (True, False)
    ]
    with clock.on_stream():
        graphs[0].replay()
    wrong += _check_fed(kinds)
    total = clock.replays(graphs[0].replay, clock.plan.step_replays)
    wrong += _check_fed(kinds)
    nocomm = clock.replays(graphs[1].replay, clock.plan.step_replays)
    with clock.on_stream():
        wrong += _check_unfed(kinds)
    return StepResult(total, nocomm, wrong)


def _body(
    step: Step,
    kinds: dict[tuple[object, ...], _Kind],
    computes: dict[tuple[object, ...], Products],
    spin: Call | None,
    *,
    collectives: bool,
) -> list[Call]:
    body: list[Call] = []
    used: dict[tuple[object, ...], int] = {}
    for call in step.calls:
        key = _key(call)
        calls = kinds[key].slots.calls
        for _ in range(call.count):
            index = used.get(key, 0)
            used[key] = index + 1
            if key in computes:
                body.append(_bound(computes[key].run, index))
            if spin is not None:
                body.append(spin)
            if collectives:
                body.append(calls[index % len(calls)])
    return body


def _bound(run: Callable[[int], None], index: int) -> Call:
    return lambda: run(index)


def _check_fed(kinds: dict[tuple[object, ...], _Kind]) -> int:
    """Return the wrong elements after a replay, where products fed the collectives."""
    wrong = 0
    for kind in kinds.values():
        if kind.products is not None:
            blocks = kind.products.last_blocks(kind.uses, kind.slots.slots)
            wrong += kind.slots.wrong_against(blocks)
    return wrong


def _check_unfed(kinds: dict[tuple[object, ...], _Kind]) -> int:
    """Return the wrong elements of one eager call per slot, where nothing feeds the collectives."""
    wrong = 0
    for kind in kinds.values():
        if kind.products is None:
            wrong += kind.slots.check()
            kind.slots.clear()
    return wrong
