"""The front door: starts torchrun as a child and returns the true exit code.

torchrun turns every worker's exit code into 1. Behind the front door a module therefore leaves
with 0 whenever it could say what happened, and its exit code travels in a file. Ctrl-C reaches the
front door alone (torchrun gets a session of its own), which passes it to rank 0; rank 0 ends the
study in order, and ranks that still wait for it then are ended.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from collbench.errors import CollbenchError, Exit
from collbench.parent_death import die_with_parent
from collbench.ranks import rank_of, under_launcher

if TYPE_CHECKING:
    import click

VARIABLE = "COLLBENCH_FRONT"
"""Names the folder where a module leaves its process id and its exit code."""
TORCHRUN = "COLLBENCH_TORCHRUN"
"""Process id of the torchrun behind the front door, as it told its ranks."""
_END_WAIT_S = 20.0
"""For rank 0 to end what runs, after an interrupt."""
_LEAVE_S = 2.0
"""For the other ranks to leave after rank 0."""
_LOOK_S = 0.2
_SPEAK_S = 2.0


def start(module: str, arguments: Sequence[str], *, nproc_per_node: int | None) -> int:
    """Run ``collbench.MODULE`` under torchrun on this machine and return its exit code.

    Args:
        module: ``bench``, ``sweep`` or ``check``.
        arguments: Its command line.
        nproc_per_node: Ranks; None: one per visible GPU, or 2 without a GPU.

    Raises:
        CollbenchError: torch is missing, or `nproc_per_node` is no positive number.
    """
    if importlib.util.find_spec("torch") is None:
        raise CollbenchError(
            "torch is not installed, so there is no torchrun to start the ranks with",
            fix="pip install torch (on a GPU machine: the one your server uses)",
        )
    count = default_nproc() if nproc_per_node is None else nproc_per_node
    if count < 1:
        raise CollbenchError(f"--nproc-per-node {count}: at least 1 rank is needed")
    with tempfile.TemporaryDirectory(prefix="collbench-front-") as folder:
        command = [
            *(sys.executable, "-m", "collbench.ranks.torchrun", "--standalone"),
            *("--nproc-per-node", str(count), "-m", f"collbench.{module}", *arguments),
        ]
        environ = {"OMP_NUM_THREADS": "1", **os.environ, VARIABLE: folder}
        parent = os.getpid()
        process = subprocess.Popen(
            command,
            env=environ,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(parent, signal.SIGTERM),
        )
        status = _wait(process, Path(folder))
        return _exit_code(Path(folder), status)


def arguments_of(context: click.Context, *, without: tuple[str, ...] = ()) -> list[str]:
    """Return the command line that gives a context its values, options named in full.

    Args:
        context: Of the front door's command.
        without: Names of parameters that the module does not have.
    """
    options: list[str] = []
    positional: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if name in without or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        values = list(value) if isinstance(value, tuple) else [value]
        if parameter.param_type_name == "argument":
            positional += [str(one) for one in values]
        elif getattr(parameter, "is_flag", False):
            options.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        else:
            for one in values:
                options += [parameter.opts[0], str(one)]
    return [*options, *positional]


def default_nproc() -> int:
    """Return the number of visible GPUs, or 2 without one."""
    from collbench.pool.gpus import visible_gpus

    return len(visible_gpus()) or 2


def _wait(process: subprocess.Popen[bytes], folder: Path) -> int:
    """Return torchrun's status; pass a first Ctrl-C or SIGTERM to rank 0, end it at a second."""
    stop_at: float | None = None
    asked = left = False
    previous = signal.signal(signal.SIGTERM, lambda *_: _interrupt())
    try:
        while True:
            try:
                return process.wait(timeout=_LOOK_S if asked else None)
            except subprocess.TimeoutExpired:
                if not left and _told(folder) is not None:
                    left, stop_at = True, time.monotonic() + _LEAVE_S
                if stop_at is not None and time.monotonic() > stop_at:
                    process.terminate()
            except KeyboardInterrupt:
                # a module that has left its code is done: torchrun is about to leave as well
                if asked or not (_pass_on(folder) or _told(folder) is not None):
                    process.terminate()
                if not asked:
                    asked, stop_at = True, time.monotonic() + _END_WAIT_S
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _pass_on(folder: Path) -> bool:
    """Send rank 0 an interrupt; return whether it was there to get one."""
    try:
        os.kill(int((folder / "pid").read_text()), signal.SIGINT)
    except (OSError, ValueError):
        return False
    return True


def _exit_code(folder: Path, status: int) -> int:
    code = _told(folder)
    if code is not None:
        return code
    if status not in (Exit.INTERRUPTED, -signal.SIGTERM, -signal.SIGINT):
        return Exit.FAILED
    print("collbench: stopped before anything was measured", file=sys.stderr)
    return Exit.INTERRUPTED


def _told(folder: Path) -> int | None:
    """Return the exit code that rank 0 has left, if it has."""
    try:
        return int((folder / "exit_code").read_text())
    except (OSError, ValueError):
        return None


def run_module(main: Callable[[Sequence[str]], int], arguments: Sequence[str]) -> int:
    """Run a module's main function as one rank and return the exit code of this process.

    A user's mistake is one line on stderr, from rank 0 alone. Behind the front door the true code
    is left for it, and 0 is returned so that torchrun stays quiet.
    """
    rank = rank_of(os.environ)
    folder = os.environ.get(VARIABLE)
    if under_launcher(os.environ):
        # a rank may come up after its launcher has gone, and then has another parent already
        parent = os.environ.get(TORCHRUN, "") if folder else ""
        die_with_parent(int(parent) if parent.isdigit() else os.getppid())
    if rank == 0 and folder:
        (Path(folder) / "pid").write_text(str(os.getpid()))
    signal.signal(signal.SIGTERM, lambda *_: _interrupt())
    try:
        code = main(arguments)
    except CollbenchError as error:
        code = error.code
        if rank == 0:
            print(f"collbench: {error}", file=sys.stderr, flush=True)
        elif code == Exit.FAILED:  # perhaps of this rank alone
            print(f"collbench: rank {rank}: {error.what}", file=sys.stderr, flush=True)
        else:
            # mpirun kills every rank when the first one leaves: rank 0 speaks first
            time.sleep(_SPEAK_S)
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    if not folder:
        return code
    if rank != 0:
        # A fault of this rank alone must end the others; rank 0 tells of one they all see.
        return code if code == Exit.FAILED else 0
    with suppress(OSError):
        (Path(folder) / "exit_code").write_text(str(int(code)))
    return 0
