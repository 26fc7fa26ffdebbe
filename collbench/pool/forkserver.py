"""A fork server with torch imported and CUDA untouched: a worker costs a fork, not an import.

The server is forked from the supervisor before a store, a study or MPI starts threads there. It
forks one worker at a time on request, reaps it, and kills it on request: only the process that
forked a worker signals it, so a pid that was reused is never hit.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collbench.errors import CollbenchError, Exit
from collbench.job import Job, Place, from_plain, to_plain
from collbench.parent_death import die_with_parent

_KILL_WAIT_S = 10.0
"""A process that is killed and not gone after this long hangs in the driver."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a worker process ended."""

    exit_code: int | None
    """None: killed, and still not gone after 10 s."""
    signal: int | None = None
    killed: bool = False
    """Ended by us."""


class ForkServer:
    """The client's end; one worker at a time."""

    def __init__(self, preload: tuple[str, ...], worker: str = "collbench.worker:run_rank") -> None:
        parent = os.getpid()
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            # BLAS threads sleep and hold no lock of Python; 3.12 warns of any second thread.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            ours.close()
            _serve(theirs, parent, preload, worker)
        theirs.close()
        self.pid = pid
        self._socket = ours
        self._buffer = b""

    def start(self, job: Job, place: Place, environ: dict[str, str], log: Path) -> None:
        """Fork a worker; returns at once."""
        message = {
            "start": {
                "job": to_plain(job),
                "place": to_plain(place),
                "environ": environ,
                "log": str(log),
            }
        }
        self._send(message)

    def kill(self) -> None:
        """Kill the worker that runs; `wait` then tells how it ended."""
        self._send({"kill": True})

    def wait(self, timeout_s: float) -> Ended | None:
        """Return how the worker ended, or None if it still runs after `timeout_s`.

        Raises:
            CollbenchError: the server itself is gone.
        """
        end = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = end - time.monotonic()
            if left < 0 or not select.select([self._socket], [], [], left)[0]:
                return None
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise CollbenchError(
                    "the fork server died", fix="see its log above", code=Exit.FAILED
                )
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return Ended(**json.loads(line))

    def close(self) -> None:
        """End the server, and with it a worker that still runs."""
        self._socket.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            return

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise CollbenchError("the fork server died", code=Exit.FAILED) from error


def _serve(peer: socket.socket, parent: int, preload: tuple[str, ...], worker: str) -> None:
    """Serve until the supervisor closes its end; never returns."""
    code = 1
    try:
        die_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
        for name in preload:
            importlib.import_module(name)
        module, function = worker.split(":")
        loaded = importlib.import_module(module)
        if hasattr(loaded, "preload"):
            loaded.preload()
        _loop(peer, getattr(loaded, function))
        code = 0
    except BaseException:  # the edge of a process: everything must be seen, nothing may escape
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _loop(peer: socket.socket, run_rank: Any) -> None:
    buffer = b""
    pid = watch = 0
    killed = False
    while True:
        sources: list[socket.socket | int] = [peer, watch] if pid else [peer]
        ready = select.select(sources, [], [])[0]
        if pid and watch in ready:
            _, status = os.waitpid(pid, 0)
            os.close(watch)
            _reply(peer, os.waitstatus_to_exitcode(status), killed)
            pid = 0
            continue
        if peer in ready:
            chunk = peer.recv(1 << 20)
            if not chunk:
                if pid:
                    _kill(pid)
                return
            buffer += chunk
            while b"\n" in buffer:
                line, buffer = buffer.split(b"\n", 1)
                message = json.loads(line)
                if "start" in message:
                    pid, killed = _fork(peer, run_rank, message["start"]), False
                    watch = os.pidfd_open(pid)
                elif pid:
                    killed = True
                    _kill(pid)
                    if not select.select([watch], [], [], _KILL_WAIT_S)[0]:
                        _reply(peer, None, True)


def _kill(pid: int) -> None:
    """Kill a worker and what it started; it leads a process group of its own."""
    os.killpg(pid, signal.SIGKILL)


def _reply(peer: socket.socket, code: int | None, killed: bool) -> None:
    signum = -code if code is not None and code < 0 else None
    peer.sendall(
        json.dumps({"exit_code": code, "signal": signum, "killed": killed}).encode() + b"\n"
    )


def _fork(peer: socket.socket, run_rank: Any, start: dict[str, Any]) -> int:
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        # both sides set it: whoever comes first, a kill finds the group
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        die_with_parent(parent)
        peer.close()
        _redirect(start["log"])
        os.environ.clear()
        os.environ.update(start["environ"])
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        run_rank(from_plain(Job, start["job"]), from_plain(Place, start["place"]))
        code = 0
    except BaseException:  # the edge of a process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: str) -> None:
    """Send the worker's output to its log: libraries print on stdout (NCCL its version)."""
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    # the parent's Python streams may lead elsewhere (a notebook, a test runner)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
