"""Gloo through torch: TCP between processes. Can be timed; it has nothing to tune."""

from __future__ import annotations

import time

import torch

from collbench.backends import SUPPORTED_DTYPES, mapped_library
from collbench.backends.torch_group import TorchGroup
from collbench.job import Job, Place


class Gloo(TorchGroup):
    """One rank of a Gloo group on the CPU."""

    name = "gloo"
    dtypes = SUPPORTED_DTYPES["gloo"]

    def __init__(self, job: Job, place: Place) -> None:
        started = time.perf_counter()
        torch.set_num_threads(1)
        super().__init__(job, place, torch.device("cpu"))
        self.open_group()
        self.seconds["total_open"] = time.perf_counter() - started

    def library(self) -> tuple[str, str | None]:
        """Return torch's version: Gloo is built into it and has none of its own."""
        return f"Gloo of torch {torch.__version__}", mapped_library("libtorch_cpu")
