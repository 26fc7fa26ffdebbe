"""The collectives of one decode or verify step of a server, with their sizes and compute.

`load` takes a model (a Hugging Face ``config.json`` or a preset), the NCCL log of a server, or a
TOML file, and returns a `Workload`: a `collbench.job.Step` and where it came from. Standard
library only.
"""

from __future__ import annotations

from collbench.workload.buckets import SERVERS, Server
from collbench.workload.model import Model, presets, read_model
from collbench.workload.sources import load, load_table, names
from collbench.workload.step import Workload, step_of_model

__all__ = [
    "SERVERS",
    "Model",
    "Server",
    "Workload",
    "load",
    "load_table",
    "names",
    "presets",
    "read_model",
    "step_of_model",
]
