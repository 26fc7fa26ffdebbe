"""Confirmation on fresh launches, the gate, and what `check` decides. Launches through a Lab."""

from collbench.confirm.arms import Blocks, Setup
from collbench.confirm.check import CheckResult, Recorded, check
from collbench.confirm.confirmation import Confirmation, confirm
from collbench.confirm.gate import Limits
from collbench.confirm.noise import Floor, measure_floor
from collbench.confirm.objective import OBJECTIVES, Objective, Sample, sample

__all__ = [
    "OBJECTIVES",
    "Blocks",
    "CheckResult",
    "Confirmation",
    "Floor",
    "Limits",
    "Objective",
    "Recorded",
    "Sample",
    "Setup",
    "check",
    "confirm",
    "measure_floor",
    "sample",
]
