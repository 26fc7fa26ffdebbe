"""The matrix products in front of a step's collectives, whose result is known exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from collbench.backends import Unsupported
from collbench.job import StepCall
from collbench.measure.slots import Slots

if TYPE_CHECKING:
    from collections.abc import Sequence

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
_L2_MULTIPLE = 4
"""Weights rotate through sets of so many L2 caches in all: a layer never finds its own there."""


class Products:
    """Products ``x @ W1 @ W2 ...`` for each call, with weights in several sets used in turn.

    Every row of ``x`` selects one row of W1, that row one of W2, and so on; the rows of the last
    weight selected so are test data. So the result is exact whatever the other weights are, and
    the payload of a collective can be checked although a product has just written it. All weights
    are read all the same: their values do not change what a product costs.

    Args:
        device: Where the weights lie.
        call: A call of the step; those with the same message and products share these weights.
        slots: The messages that the products write.
        uses: How often the step runs these products. A model's step alternates calls, each with
            count 1: its layers have weights of their own all the same.
    """

    def __init__(self, device: torch.device, call: StepCall, slots: Slots, *, uses: int) -> None:
        if call.dtype not in _DTYPES:
            raise Unsupported(f"compute in {call.dtype}: {', '.join(_DTYPES)}")
        for (_, _, n), (_, k, _) in zip(call.compute, call.compute[1:], strict=False):
            if n != k:
                raise Unsupported(f"compute of {call.collective}: [.., {n}] @ [{k}, ..]")
        rows, last = call.compute[0][0], call.compute[-1][2]
        if any(m != rows for m, _, _ in call.compute):
            raise Unsupported(f"compute of {call.collective}: products of unequal rows")
        dtype = _DTYPES[call.dtype]
        self._selected = min(rows, *(k for _, k, _ in call.compute))
        # Otherwise the products write to memory of their own, and the message is checked apart.
        self.feeds = rows * last == slots.input_count and self._selected == rows
        self._input = torch.zeros(rows, call.compute[0][1], dtype=dtype, device=device)
        for row in range(rows):
            self._input[row, row % self._selected] = 1
        item = self._input.element_size()
        weight_bytes = sum(k * n for _, k, n in call.compute) * item
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        self.sets = max(1, min(uses, -(-_L2_MULTIPLE * l2_bytes // weight_bytes)))
        self._weights = [
            self._weight_set(call, slots, block, dtype, device) for block in range(self.sets)
        ]
        self._between = [
            torch.empty(rows, n, dtype=dtype, device=device) for _, _, n in call.compute[:-1]
        ]
        self._outputs = self._output_tensors(slots, rows, last, dtype, device)

    def _weight_set(
        self, call: StepCall, slots: Slots, block: int, dtype: torch.dtype, device: torch.device
    ) -> list[Any]:
        weights = []
        for index, (_, k, n) in enumerate(call.compute):
            weight = torch.empty(k, n, dtype=dtype, device=device).normal_(0, 0.02)
            chosen = weight[: self._selected]
            chosen.zero_()
            if index < len(call.compute) - 1:
                for row in range(self._selected):
                    chosen[row, row] = 1
            elif self.feeds:
                rows = torch.frombuffer(bytearray(slots.input_bytes(block)), dtype=dtype)
                chosen.copy_(rows.view(-1, n)[: self._selected])
            weights.append(weight)
        return weights

    def _output_tensors(
        self, slots: Slots, rows: int, last: int, dtype: torch.dtype, device: torch.device
    ) -> list[Any]:
        if not self.feeds:
            return [torch.empty(rows, last, dtype=dtype, device=device)]
        outputs = []
        for slot in range(slots.slots):
            span = slots.input_span(slot)
            nbytes = span.count * self._input.element_size()
            flat = span.memory[span.offset : span.offset + nbytes].view(dtype)
            outputs.append(flat.view(rows, last))
        return outputs

    def run(self, index: int) -> None:
        """Enqueue the products in front of call number `index` of the step."""
        operand = self._input
        weights = self._weights[index % self.sets]
        for weight, out in zip(weights[:-1], self._between, strict=True):
            torch.mm(operand, weight, out=out)
            operand = out
        torch.mm(operand, weights[-1], out=self._outputs[index % len(self._outputs)])

    def last_blocks(self, uses: int, slots: int) -> Sequence[int]:
        """Return, for each slot, the block of test data of the last of `uses` calls on it."""
        last = [0] * slots
        for index in range(uses):
            last[index % slots] = index % self.sets
        return last
