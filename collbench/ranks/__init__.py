"""Which launcher started this process, which rank it is, and the store between the ranks."""

from collbench.ranks.launchers import (
    Launch,
    Launcher,
    detect,
    rank_of,
    under_launcher,
    without_launcher,
)
from collbench.ranks.meeting import host_name, open_store
from collbench.ranks.stores import ControlStore, LocalStore, TorchStore

__all__ = [
    "ControlStore",
    "Launch",
    "Launcher",
    "LocalStore",
    "TorchStore",
    "detect",
    "host_name",
    "open_store",
    "rank_of",
    "under_launcher",
    "without_launcher",
]
