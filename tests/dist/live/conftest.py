"""Starts real process trees and ends them."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

TREE = Path(__file__).with_name("tree.py")
PROFILE = {"NCCL_PROTO": "LL", "NCCL_MIN_NCHANNELS": "16"}
CLEAN = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}


class Tree(NamedTuple):
    pid: int
    workers: list[int]


Start = Callable[..., Tree]


def pythons() -> list[str]:
    """This Python, and the system's if it is another one of the same version."""
    found = [sys.executable]
    system = "/usr/bin/python3"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if Path(system).exists() and Path(system).resolve() != Path(sys.executable).resolve():
        said = subprocess.run([system, "-V"], capture_output=True, text=True, check=True).stdout
        if said.startswith(f"Python {version}."):
            found.append(system)
    return found


def with_setproctitle(tmp_path: Path) -> dict[str, str]:
    """PYTHONPATH with setproctitle alone, for a Python that does not have it."""
    spec = importlib.util.find_spec("setproctitle")
    assert spec is not None, "setproctitle belongs to the test dependencies"
    assert spec.origin is not None
    link = tmp_path / "packages"
    link.mkdir(exist_ok=True)
    source = Path(spec.origin)
    target = link / "setproctitle" if source.name.startswith("__init__") else link / source.name
    if not target.exists():
        target.symlink_to(source.parent if source.name.startswith("__init__") else source)
    return {"PYTHONPATH": str(link)}


@pytest.fixture(params=pythons(), ids=lambda p: "system" if p.startswith("/usr/bin") else "own")
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def launch(env: dict[str, str] | None = None, **spec: Any) -> Tree:
        full = {**CLEAN, **with_setproctitle(tmp_path), **(PROFILE if env is None else env)}
        process = subprocess.Popen(
            [request.param, str(TREE), json.dumps(spec)],
            env=full,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout is not None
        word, *pids = process.stdout.readline().split()
        assert word == "ready"
        return Tree(process.pid, [int(pid) for pid in pids])

    yield launch
    for process in running:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    """End a tree: its root ends with its stdin and takes its children along."""
    below = descendants(process.pid)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=3)
    for pid in [process.pid, *below]:
        with contextlib.suppress(OSError):
            os.kill(pid, 9)
    process.wait()
    process.stdout.close()


def descendants(pid: int) -> list[int]:
    from collbench.live import processes

    return processes.descendants(pid, processes.children(processes.snapshot()))[1:]
