"""One rank on the CPU that stands for a device, with a clock whose graphs are run call by call."""

from __future__ import annotations

import contextlib
import weakref
from types import SimpleNamespace
from typing import Any, Literal

from collbench.backends import Call, Span
from collbench.job import Plan


class Alone:
    """A group of one rank: a sum in place is done before it has begun."""

    name, rank, nranks, device, pci = "alone", 0, 1, "cpu", None
    dtypes = frozenset({"float32"})
    reduce_scatter_at: Literal["own", "front"] = "own"

    def __init__(self) -> None:
        import torch

        self.torch_device = torch.device("cpu")

    def allocate(self, nbytes: int) -> Any:
        import torch

        return torch.zeros(nbytes, dtype=torch.uint8)

    def write(self, memory: Any, data: bytes) -> None:
        import torch

        memory[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)

    def read(self, memory: Any, nbytes: int) -> bytes:
        return bytes(memory[:nbytes].numpy())

    def clear(self, memory: Any) -> None:
        memory.zero_()

    def prepare(self, collective: str, dtype: str, send: Span, recv: Span) -> Call:
        return lambda: None

    def drain(self) -> None:
        return None


class Replayed:
    """Stands for the device's clock: a graph is its calls, run in order."""

    def __init__(self, backend: Alone) -> None:
        self.backend, self.plan = backend, Plan()
        self.captured: list[weakref.ref[Graph]] = []
        self.timed: list[tuple[int, int]] = []
        """Calls of the graph that was timed, and its windows, in order."""

    def on_stream(self) -> Any:
        return contextlib.nullcontext()

    def capture(self, body: list[Call]) -> Graph:
        graph = Graph(body)
        self.captured.append(weakref.ref(graph))
        return graph

    def windows(self, graph: Graph) -> Any:
        def time(windows: int) -> list[float]:
            self.timed.append((len(graph.body), windows))
            graph.replay()
            return [1.0] * windows

        return SimpleNamespace(time=time)


class Graph:
    """Calls, run in order."""

    def __init__(self, body: list[Call]) -> None:
        self.body = body

    def replay(self) -> None:
        for call in self.body:
            call()
