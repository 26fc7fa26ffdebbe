"""Many nodes on one study in a real PostgreSQL: is a trial lost or doubled, and how fast is it?

Starts a PostgreSQL of its own (a Unix socket, no network), puts a study in it, and forks clients
that do what a node of a shared sweep does: propose a candidate, ask (and perhaps get what another
proposed), mark, beat, tell. The measurement between ask and tell is a pause. Some clients are
killed in the middle; the others must notice and run their candidates. At the end every candidate
that was proposed must have been completed once.

    python -m benchmarks.storage_load --clients 64 --trials 640 -o results/storage_load.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import optuna
from optuna.trial import TrialState

from collbench.files import write_atomic
from collbench.parent_death import die_with_parent
from collbench.search import shared
from collbench.search.backings import open_shared
from collbench.search.shared import Node, Peers

STUDY = "load"


def find_postgres() -> Path | None:
    """Return the folder with initdb and postgres, newest version first, or None."""
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name)
    )
    there = shutil.which("postgres")
    found = [*debian, *([Path(there).parent] if there else [])]
    return next((path for path in found if (path / "initdb").exists()), None)


@contextlib.contextmanager
def postgres(connections: int = 300) -> Iterator[str]:
    """Run a PostgreSQL in a folder of its own; yield the URL of its database."""
    binaries = find_postgres()
    if binaries is None:
        raise SystemExit("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="collbench-pg-"))
    # PostgreSQL refuses to run as root. A change of user clears the order to die with this
    # process, which is why it is given after it, in preexec_fn.
    user: dict[str, Any] = {"cwd": folder}
    if os.geteuid() == 0:
        user |= {"user": "postgres", "group": "postgres", "extra_groups": []}
        shutil.chown(folder, "postgres")
    folder.chmod(0o755)
    data, parent = folder / "data", os.getpid()
    options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync"]
    try:
        subprocess.run(
            [str(binaries / "initdb"), "-D", str(data), *options],
            check=True,
            capture_output=True,
            **user,
        )
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(
                [
                    *(str(binaries / "postgres"), "-D", str(data), "-k", str(folder)),
                    *("-c", "listen_addresses=", "-c", f"max_connections={connections}"),
                ],
                stdout=log,
                stderr=log,
                preexec_fn=lambda: die_with_parent(parent, signal.SIGQUIT),
                **user,
            )
        try:
            _wait_ready(binaries, folder, server)
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            server.send_signal(signal.SIGINT)  # "fast": clients are cut off
            server.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_ready(binaries: Path, folder: Path, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end and server.poll() is None:
        ready = subprocess.run(
            [str(binaries / "pg_isready"), "-q", "-h", str(folder), "-U", "postgres"], check=False
        )
        if ready.returncode == 0:
            return
        time.sleep(0.05)
    raise SystemExit(f"PostgreSQL does not start:\n{(folder / 'log').read_text()}")


def close(storage: Any) -> None:
    """Close the connections of a storage."""
    database = getattr(storage, "_backend", storage)
    database.remove_session()
    database.engine.dispose()


def client(url: str, index: int, own: list[int], log: Path, pause_s: float, end_s: float) -> None:
    """Be one node: propose the candidates in `own`, then help until nothing is left."""
    study = optuna.load_study(
        study_name=STUDY,
        storage=open_shared(url),
        sampler=optuna.samplers.RandomSampler(seed=index),
    )
    peers = Peers(study, Node(name=f"node{index}"))
    rng = random.Random(index)
    end = time.monotonic() + end_s
    with log.open("a", buffering=1) as file:
        while time.monotonic() < end:
            peers.retry_stale()
            began = time.perf_counter()
            if own:
                study.enqueue_trial({"candidate": own.pop()}, user_attrs={"queued": True})
            elif not study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                if not study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                    return
                time.sleep(0.5)
                continue
            trial = peers.ask()
            candidate = trial.suggest_int("candidate", -1_000_000, 1_000_000)
            if "queued" not in trial.user_attrs and "again" not in trial.user_attrs:
                # others emptied the queue between the look and the ask: not a candidate
                study.tell(trial, state=TrialState.FAIL)
                peers.release()
                continue
            asked = time.perf_counter()
            file.write(json.dumps({"run": candidate}) + "\n")
            time.sleep(rng.uniform(0.5, 1.5) * pause_s)
            told = time.perf_counter()
            if peers.lost(trial):
                continue
            study.tell(trial, float(candidate))
            peers.release()
            seconds = asked - began + time.perf_counter() - told
            file.write(json.dumps({"told": candidate, "storage_s": seconds}) + "\n")


def load(
    url: str, *, clients: int, trials: int, kill: int, pause_s: float, end_s: float = 900.0
) -> dict[str, Any]:
    """Run the clients and return what happened."""
    shared.BEAT_S, shared.STALE_S = 2.0, 10.0
    study = optuna.create_study(study_name=STUDY, storage=open_shared(url))
    close(study._storage)  # a connection must not cross a fork
    with tempfile.TemporaryDirectory() as name:
        logs = [Path(name) / f"{index}.log" for index in range(clients)]
        began = time.monotonic()
        parent = os.getpid()
        pids = []
        for index, log in enumerate(logs):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    die_with_parent(parent)
                    own = list(range(index, trials, clients))
                    client(url, index, own, log, pause_s, end_s)
                    code = 0
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            pids.append(pid)
        killed = _kill_some(pids, logs, kill)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        seconds = time.monotonic() - began
        lines = [json.loads(line) for log in logs for line in log.read_text().splitlines() if line]
    return _judge(url, lines, codes, killed, seconds, clients=clients)


def _kill_some(pids: list[int], logs: list[Path], count: int) -> list[int]:
    """Kill clients one after the other, each in the middle of a trial of its own."""
    killed: list[int] = []
    while len(killed) < count:
        for index, log in enumerate(logs):
            lines = log.read_text().splitlines() if log.exists() else []
            busy = len(lines) > 2 and "run" in lines[-1]
            if busy and index not in killed and len(killed) < count:
                os.kill(pids[index], signal.SIGKILL)
                killed.append(index)
        time.sleep(0.005)
    return killed


def _judge(
    url: str,
    lines: list[dict[str, Any]],
    codes: list[int],
    killed: list[int],
    seconds: float,
    *,
    clients: int,
) -> dict[str, Any]:
    study = optuna.load_study(study_name=STUDY, storage=open_shared(url))
    every = study.get_trials(deepcopy=False)
    done = Counter(t.params["candidate"] for t in every if t.state == TrialState.COMPLETE)
    proposed = {t.params["candidate"] for t in every if "queued" in t.user_attrs and t.params}
    waiting = {
        t.system_attrs["fixed_params"]["candidate"]
        for t in every
        if "fixed_params" in t.system_attrs
    }
    proposed |= waiting
    told = [line["storage_s"] for line in lines if "told" in line]
    left = [t for t in every if not t.state.is_finished()]
    close(study._storage)
    return {
        "schema": 1,
        "what": "clients of one shared study: asks, heartbeats, tells; the measurement is a pause",
        "storage": url.split(":")[0],
        "clients": clients,
        "killed": len(killed),
        "failed_clients": sum(code != 0 for i, code in enumerate(codes) if i not in killed),
        "candidates": len(proposed),
        "completed": sum(done.values()),
        "lost": len(proposed - set(done)),
        "doubled": sum(count - 1 for count in done.values() if count > 1),
        "left_unfinished": len(left),
        "retried": sum("again" in t.user_attrs for t in every),
        "seconds": round(seconds, 2),
        "trials_per_s": round(sum(done.values()) / seconds, 2),
        "storage_ms_p50": round(median(told) * 1000, 1),
        "storage_ms_p95": round(quantiles(told, n=20)[-1] * 1000, 1),
        "optuna": optuna.__version__,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
    }


def main() -> None:
    """Run the benchmark; exit 1 where a trial was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--trials", type=int, default=640)
    parser.add_argument("--kill", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds a trial takes")
    parser.add_argument("-o", "--out", type=Path)
    given = parser.parse_args()
    with postgres() as url:
        found = load(
            url,
            clients=given.clients,
            trials=given.trials,
            kill=given.kill,
            pause_s=given.pause,
        )
    found["command"] = "python -m benchmarks.storage_load " + " ".join(
        f"--{name} {getattr(given, name)}" for name in ("clients", "trials", "kill", "pause")
    )
    text = json.dumps(found, indent=2) + "\n"
    print(text, end="")
    if given.out is not None:
        write_atomic(given.out, text)
    wrong = found["lost"] or found["doubled"] or found["left_unfinished"] or found["failed_clients"]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
