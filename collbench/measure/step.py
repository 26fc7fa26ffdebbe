"""The step: the whole sequence of collectives, call by call on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from collbench.backends import Backend, Call
from collbench.job import Plan, Skew, Step, StepCall
from collbench.measure.host import HostClock, busy_wait
from collbench.measure.slots import Slots

if TYPE_CHECKING:
    from collbench.measure.products import Products


@dataclass(slots=True)
class StepResult:
    """One rank's share of the step."""

    total_us: list[float]
    nocomm_us: list[float]
    wrong: int


@dataclass(slots=True)
class Kind:
    """Calls of a step that share their messages (and their weights)."""

    slots: Slots
    uses: int
    products: Products | None = None
    """Set where the compute in front of the call writes its input."""


def host_step(
    backend: Backend, clock: HostClock, step: Step, plan: Plan, skew: Skew | None
) -> StepResult:
    """Time the sequence call by call, without compute; check the data before and after.

    Every rank calls it.

    Raises:
        Unsupported: a call cannot be done by this backend; every rank raises alike.
    """
    kinds = kinds_of(backend, step, plan)
    delay = delay_us(skew, backend.rank)
    spin = busy_wait(delay) if delay else None
    wrong = sum(kind.slots.check() for kind in kinds.values())
    for kind in kinds.values():
        kind.slots.clear()
    sequence: list[Call] = []
    idle: list[Call] = []
    used: dict[tuple[object, ...], int] = {}
    for call in step.calls:
        calls = kinds[key_of(call)].slots.calls
        for _ in range(call.count):
            index = used.get(key_of(call), 0)
            used[key_of(call)] = index + 1
            if spin is not None:
                sequence.append(spin)
                idle.append(spin)
            sequence.append(calls[index % len(calls)])
    total = clock.step(sequence).times_us
    nocomm = clock.timed(idle, clock.plan.step_replays) if skew is not None else []
    wrong += sum(kind.slots.check() for kind in kinds.values())
    return StepResult(total, nocomm, wrong)


def delay_us(skew: Skew | None, rank: int) -> float:
    """Return by how much `rank` is made late before each collective."""
    return skew.delay_us if skew is not None and skew.rank == rank else 0.0


def key_of(call: StepCall) -> tuple[object, ...]:
    """Return what calls have in common that share their messages."""
    return (call.collective, call.size_bytes, call.dtype, call.compute)


def kinds_of(backend: Backend, step: Step, plan: Plan) -> dict[tuple[object, ...], Kind]:
    """Return the calls of a step by kind, with their messages.

    Raises:
        Unsupported: a call cannot be done by this backend; every rank raises alike.
    """
    uses: dict[tuple[object, ...], int] = {}
    for call in step.calls:
        uses[key_of(call)] = uses.get(key_of(call), 0) + call.count
    kinds = {}
    for call in step.calls:
        if key_of(call) not in kinds:
            slots = Slots(
                backend,
                call.collective,
                call.size_bytes,
                call.dtype,
                pool_bytes=plan.pool_bytes,
                uses=uses[key_of(call)],
            )
            kinds[key_of(call)] = Kind(slots, uses[key_of(call)])
    return kinds
