"""The fork server with real processes: a worker that ends, dies, hangs, or loses its parents."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from collbench.job import Job, Place
from collbench.pool.forkserver import ForkServer

pytestmark = pytest.mark.dist

WORKER = textwrap.dedent(
    """
    import faulthandler, json, os, signal, sys, time
    from pathlib import Path

    def run_rank(job, place):
        what = os.environ["WHAT"]
        print("hello from", what)
        if what == "segv":
            faulthandler.disable()  # pytest's, which would print the planted fault as a real one
            os.kill(os.getpid(), signal.SIGSEGV)
        if what == "hang":
            Path(place.result_path).write_text(str(os.getpid()))
            time.sleep(600)
        if what == "raise":
            raise RuntimeError("no such thing")
        Path(place.result_path).write_text(json.dumps(dict(os.environ)))
    """
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    (tmp_path / "forkserver_test_worker.py").write_text(WORKER)
    monkeypatch.syspath_prepend(str(tmp_path))
    server = ForkServer((), worker="forkserver_test_worker:run_rank")
    yield server
    server.close()


def place(tmp_path: Path) -> Place:
    return Place(
        rank=0,
        nranks=1,
        local_rank=0,
        local_world_size=1,
        result_path=str(tmp_path / "result"),
    )


JOB = Job(job_id="t", backend="gloo", nranks=1)


def test_a_worker_has_exactly_the_environment_it_was_given(
    server: ForkServer, tmp_path: Path
) -> None:
    given = {"WHAT": "end", "NCCL_PROTO": "LL"}
    server.start(JOB, place(tmp_path), given, tmp_path / "log")
    ended = server.wait(10)
    assert ended is not None
    assert ended.exit_code == 0
    assert json.loads((tmp_path / "result").read_text()) == given
    assert "hello from end" in (tmp_path / "log").read_text()


def test_a_segfault_is_told_by_its_signal_and_the_server_goes_on(
    server: ForkServer, tmp_path: Path
) -> None:
    server.start(JOB, place(tmp_path), {"WHAT": "segv"}, tmp_path / "log")
    ended = server.wait(10)
    assert ended is not None
    assert (ended.signal, ended.killed) == (signal.SIGSEGV, False)
    server.start(JOB, place(tmp_path), {"WHAT": "end"}, tmp_path / "log")
    again = server.wait(10)
    assert again is not None
    assert again.exit_code == 0


def test_an_exception_leaves_its_traceback_in_the_log(server: ForkServer, tmp_path: Path) -> None:
    server.start(JOB, place(tmp_path), {"WHAT": "raise"}, tmp_path / "log")
    ended = server.wait(10)
    assert ended is not None
    assert ended.exit_code == 1
    assert "RuntimeError: no such thing" in (tmp_path / "log").read_text()


def test_a_hung_worker_is_killed(server: ForkServer, tmp_path: Path) -> None:
    server.start(JOB, place(tmp_path), {"WHAT": "hang"}, tmp_path / "log")
    assert server.wait(0.3) is None
    server.kill()
    ended = server.wait(5)
    assert ended is not None
    assert (ended.signal, ended.killed) == (signal.SIGKILL, True)


def test_kill_9_of_the_supervisor_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "forkserver_test_worker.py").write_text(WORKER)
    script = textwrap.dedent(
        f"""
        from pathlib import Path
        from collbench.job import Job, Place
        from collbench.pool.forkserver import ForkServer
        server = ForkServer((), worker="forkserver_test_worker:run_rank")
        place = Place(rank=0, nranks=1, local_rank=0, local_world_size=1,
                      result_path={str(tmp_path / "result")!r})
        server.start(Job(job_id="t", backend="gloo", nranks=1), place, {{"WHAT": "hang"}},
                     Path({str(tmp_path / "log")!r}))
        print(server.pid, flush=True)
        server.wait(600)
        """
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert supervisor.stdout is not None
    server_pid = int(supervisor.stdout.readline())
    end = time.monotonic() + 10
    while not (tmp_path / "result").exists() and time.monotonic() < end:
        time.sleep(0.02)
    worker_pid = int((tmp_path / "result").read_text())
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    gone = time.monotonic() + 2
    while time.monotonic() < gone and any(map(psutil.pid_exists, (server_pid, worker_pid))):
        time.sleep(0.02)
    assert not psutil.pid_exists(server_pid)
    assert not psutil.pid_exists(worker_pid)
