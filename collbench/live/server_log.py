"""What a server's log last said: loading, ready, a benchmark's result, an error, or nothing.

Only the end of the file is read, without blocking, and only from a regular file.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from collbench.live.text import printable, redacted

State = Literal["loading", "ready", "benchmark", "error", "none"]
TAIL_BYTES = 1 << 18
_SIGNS: tuple[tuple[State, re.Pattern[str]], ...] = (
    (
        "benchmark",
        re.compile(
            r"(?:Output token throughput|Total token throughput|gen throughput|"
            r"generation throughput|Mean TPOT|Median TPOT|Mean ITL|tok/s|tokens/s)"
            r"\D{0,24}(\d[\d.,]*)",
            re.IGNORECASE,
        ),
    ),
    (
        "ready",
        re.compile(
            r"fired up and ready to roll|Application startup complete|Uvicorn running on|"
            r"server is listening on|Started server process"
        ),
    ),
    (
        "error",
        re.compile(
            r"^(?:\S+ )?Traceback \(most recent|CUDA out of memory|out of memory\. Tried|"
            r"NCCL WARN|ncclInvalidUsage|ncclSystemError|unhandled cuda error|"
            r"Received sigquit|EngineDeadError|Watchdog caught"
        ),
    ),
    (
        "loading",
        re.compile(
            r"Loading safetensors|Loading .{0,20}checkpoint|Load weight|Loading (?:model|weights)|"
            r"Starting to load model|Init torch distributed|Capturing|Capture cuda graph|"
            r"torch\.compile|Initializing|server_args=|non-default args",
            re.IGNORECASE,
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class LogState:
    """The last telling line of a log."""

    state: State
    text: str
    """The line, printable; or why there is none."""
    path: str | None = None


def of_file(path: Path) -> LogState:
    """Return what a log file last said."""
    shown = printable(str(path))
    try:
        data = _tail(path)
    except OSError as error:
        return LogState("none", f"cannot be read: {error.strerror or error}", shown)
    if data is None:
        return LogState("none", "not a regular file", shown)
    return LogState(*last_sign(data.decode("utf-8", "replace")), shown)


def of_process(pid: int) -> LogState:
    """Return what the file that a process writes its output to last said."""
    for number in (1, 2):
        link = Path(f"/proc/{pid}/fd/{number}")
        try:
            target = os.readlink(link)  # noqa: PTH115  the text, not a path to follow
            data = _tail(link)
        except OSError:
            continue
        if data is not None:
            state, text = last_sign(data.decode("utf-8", "replace"))
            return LogState(state, text, printable(target))
    return LogState("none", "its output is no file that can be read: give --log")


def last_sign(text: str) -> tuple[State, str]:
    """Return state and line of the last telling line of a text."""
    for line in reversed(text.splitlines()[-4000:]):
        clean = printable(line, 4096)
        for state, pattern in _SIGNS:
            if pattern.search(clean):
                return state, printable(redacted(clean), 200)
    return "none", "no telling line"


def _tail(path: Path) -> bytes | None:
    """Return the end of a regular file; None for anything else."""
    if not stat.S_ISREG(path.stat().st_mode):
        return None
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            return None
        file.seek(max(0, info.st_size - TAIL_BYTES))
        return file.read(TAIL_BYTES)
