"""The step on a device: one captured graph, with the model's matrix products between the calls."""

from __future__ import annotations

from collections.abc import Callable

from collbench.backends import Call
from collbench.job import Plan, Skew, Step
from collbench.measure.device import DeviceClock
from collbench.measure.products import Products
from collbench.measure.step import Kind, StepResult, delay_us, key_of, kinds_of


class DeviceStep:
    """The step, and the same without its collectives, timed in goes; every rank does the same.

    Made, the data of one pass has been checked. What the step's own products feed into its
    collectives is checked on the timed graph itself.

    Raises:
        Unsupported: a call cannot be done by this backend; every rank raises alike.
    """

    def __init__(self, clock: DeviceClock, step: Step, plan: Plan, skew: Skew | None) -> None:
        self.name = step.name
        self.result = StepResult([], [], 0)
        self._clock = clock
        self._kinds = kinds_of(clock.backend, step, plan)
        computes: dict[tuple[object, ...], Products] = {}
        delay = delay_us(skew, clock.backend.rank)
        spin = clock.spinner(delay) if delay else None
        with clock.on_stream():
            for call in step.calls:
                key = key_of(call)
                if call.compute and key not in computes:
                    kind, device = self._kinds[key], clock.backend.torch_device
                    computes[key] = Products(device, call, kind.slots, uses=kind.uses)
                    kind.products = computes[key] if computes[key].feeds else None
            self.result.wrong += _check_unfed(self._kinds)
            clock.backend.drain()
            for key, kind in self._kinds.items():
                if key in computes:
                    computes[key].run(0)
                kind.slots.calls[0]()
        self._whole, self._bare = (
            clock.capture(_body(step, self._kinds, computes, spin, collectives=collectives))
            for collectives in (True, False)
        )
        self._check_replay()
        self._total, self._nocomm = clock.windows(self._whole), clock.windows(self._bare)

    def time(self, windows: int) -> None:
        """Time `windows` more replays of both graphs, in us."""
        self.result.total_us += self._total.time(windows)
        self.result.nocomm_us += self._nocomm.time(windows)

    def finish(self) -> None:
        """Check the data once more."""
        self._check_replay()
        with self._clock.on_stream():
            self.result.wrong += _check_unfed(self._kinds)

    def _check_replay(self) -> None:
        with self._clock.on_stream():
            self._whole.replay()
        self.result.wrong += _check_fed(self._kinds)


def _body(
    step: Step,
    kinds: dict[tuple[object, ...], Kind],
    computes: dict[tuple[object, ...], Products],
    spin: Call | None,
    *,
    collectives: bool,
) -> list[Call]:
    body: list[Call] = []
    used: dict[tuple[object, ...], int] = {}
    for call in step.calls:
        key = key_of(call)
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


def _check_fed(kinds: dict[tuple[object, ...], Kind]) -> int:
    """Return the wrong elements after a replay, where products fed the collectives."""
    wrong = 0
    for kind in kinds.values():
        if kind.products is not None:
            blocks = kind.products.last_blocks(kind.uses, kind.slots.slots)
            wrong += kind.slots.wrong_against(blocks)
    return wrong


def _check_unfed(kinds: dict[tuple[object, ...], Kind]) -> int:
    """Return the wrong elements of one eager call per slot, where nothing feeds the collectives."""
    wrong = 0
    for kind in kinds.values():
        if kind.products is None:
            wrong += kind.slots.check()
            kind.slots.clear()
    return wrong
