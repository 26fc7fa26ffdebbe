"""Launches of the torch backends: every rank has a supervisor that forks and watches its worker.

Rank 0 publishes a launch in the control store; each supervisor starts its own worker, ends it at
the deadline or when another rank has failed, and publishes how it ended with the worker's file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from collbench.errors import CollbenchError, Exit
from collbench.job import Job, Place, from_plain, to_plain
from collbench.knobs import registry
from collbench.pool.forkserver import Ended, ForkServer
from collbench.pool.merge import RankEnd
from collbench.pool.processes import Child
from collbench.ranks import ControlStore, Launch, without_launcher

_POLL_S = 0.2
"""How often a supervisor asks whether another rank has failed, while its worker runs."""
_GRACE_S = 1.0
"""A worker's time to report after another rank has failed."""
_LOST_S = 20.0
"""A supervisor that is silent for this long after the deadline is gone."""
_GONE_S = 5.0
_TAIL_BYTES = 2000


class _Worker(Protocol):
    def wait(self, timeout_s: float) -> Ended | None: ...

    def kill(self) -> None: ...


class Supervisor:
    """One rank's end of the pool."""

    def __init__(
        self,
        launch: Launch,
        store: ControlStore,
        server: ForkServer | None,
        workdir: Path,
        inherited: Mapping[str, str],
        *,
        backend: str,
    ) -> None:
        self.launch = launch
        self.backend = backend
        self.store = store
        self._server = server
        self._workdir = workdir
        self._inherited = without_launcher(inherited)

    def serve(self) -> None:
        """Take part in launches until rank 0 ends the pool; every rank but 0 calls this.

        Raises:
            CollbenchError: what came through the store is nothing that rank 0 would ask.
        """
        number = 0
        while True:
            text = self.store.get(f"launch/{number}", timeout_s=1.0)
            if text is None:
                continue
            message = json.loads(text)
            if "end" in message:
                return
            check_arrival(from_plain(Job, message["job"]), self.backend)
            self._take_part(number, message)
            number += 1

    def end(self, number: int) -> None:
        """Tell every other rank that there is no launch `number`; rank 0 only."""
        self.store.set(f"launch/{number}", json.dumps({"end": True}))

    def lead(self, number: int, job: Job, env_file: Path | None) -> tuple[list[RankEnd], bool]:
        """Run launch `number` and return how every rank ended; rank 0 only.

        Raises:
            CollbenchError: a supervisor does not answer any more.
        """
        message: dict[str, Any] = {"job": to_plain(job)}
        if env_file is not None:
            message["env_file"] = env_file.read_text(encoding="utf-8")
        self.store.set(f"launch/{number}", json.dumps(message))
        mine = self._take_part(number, message)
        answers = [mine]
        for rank in range(1, self.launch.world_size):
            text = self.store.get(f"result/{number}/{rank}", timeout_s=job.deadline_s + _LOST_S)
            if text is None:
                raise CollbenchError(
                    f"rank {rank} does not answer any more",
                    fix="look at the launcher's output, then start again with --resume",
                    code=Exit.FAILED,
                )
            answers.append(json.loads(text))
            self.store.delete(f"result/{number}/{rank}")
        for key in (f"launch/{number - 1}", f"abort/{number}"):
            self.store.delete(key)
        late = [bool(answer.pop("timed_out")) for answer in answers]
        return [RankEnd(**answer) for answer in answers], any(late)

    def _take_part(self, number: int, message: dict[str, Any]) -> dict[str, Any]:
        job = from_plain(Job, message["job"])
        rank = self.launch.rank
        folder = self._workdir / f"{number}.{rank}"
        folder.mkdir(parents=True, exist_ok=True)
        place = Place(
            rank=rank,
            nranks=self.launch.world_size,
            local_rank=self.launch.local_rank,
            local_world_size=self.launch.local_world_size,
            result_path=str(folder / "result.json"),
            store_host=self.store.host,
            store_port=self.store.port,
            store_prefix=f"collbench/trial/{number}",
            timeout_s=job.deadline_s,
        )
        log = folder / "worker.log"
        worker = self._start(job, place, folder, log, message.get("env_file"))
        try:
            ended, timed_out = self._watch(number, job, worker)
        except BaseException:
            # an interrupt: no worker of this launch may stay, here or at another rank
            worker.kill()
            worker.wait(_GONE_S)
            self.store.set(f"abort/{number}", str(rank))
            raise
        text = _read(folder / "result.json")
        if not _clean(ended, text):
            self.store.set(f"abort/{number}", str(rank))
        answer: dict[str, Any] = {
            "text": text,
            "signal": ended.signal,
            "exit_code": ended.exit_code,
            "killed": ended.killed,
            "log_tail": last_line(log),
            "library_log": _library_log(folder) if job.proof_log is not None else "",
            "timed_out": timed_out,
        }
        if rank != 0:
            self.store.set(f"result/{number}/{rank}", json.dumps(answer))
        if ended.exit_code is None:
            raise CollbenchError(
                f"rank {rank}: a killed process does not leave: it hangs in the GPU driver",
                fix="see `nvidia-smi`; reset the GPU or restart the machine before you go on",
                code=Exit.FAILED,
            )
        return answer

    def _start(
        self, job: Job, place: Place, folder: Path, log: Path, env_file: str | None
    ) -> _Worker:
        environ = {**self._inherited, **job.baseline}
        if job.proof_log is not None:
            environ |= {
                "NCCL_DEBUG": "INFO",
                "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING,P2P,SHM,NET",
                "NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p.log"),
            }
        if env_file is None and job.nccl_lib is None:
            assert self._server is not None  # the MPI pool makes no launches of this kind
            self._server.start(job, place, {**environ, **job.settings}, log)
            return self._server
        for name, value in (("job.json", job), ("place.json", place)):
            (folder / name).write_text(json.dumps(to_plain(value)), encoding="utf-8")
        command = [
            *(sys.executable, "-m", "collbench.worker"),
            *("--job", str(folder / "job.json"), "--place", str(folder / "place.json")),
        ]
        if env_file is None:
            return Child(command, {**environ, **job.settings}, log)
        (folder / "profile.env").write_text(env_file, encoding="utf-8")
        run = [sys.executable, "-m", "collbench", "run", str(folder / "profile.env"), "--"]
        return Child([*run, *command], environ, log)

    def _watch(self, number: int, job: Job, worker: _Worker) -> tuple[Ended, bool]:
        """Wait for the worker; end it at the deadline, or soon after another rank failed."""
        deadline = time.monotonic() + job.deadline_s
        timed_out = asked = False
        abort_at: float | None = None
        while True:
            ended = worker.wait(_POLL_S)
            if ended is not None:
                return ended, timed_out
            now = time.monotonic()
            if abort_at is None and self.store.has([f"abort/{number}"]):
                abort_at = now + _GRACE_S
            timed_out = timed_out or now > deadline
            if not asked and (timed_out or (abort_at is not None and now > abort_at)):
                worker.kill()
                asked = True


def check_arrival(job: Job, backend: str) -> None:
    """Refuse a job that rank 0 would not send: others may reach the control store.

    Args:
        job: As it came.
        backend: What this rank's own command line chose.

    Raises:
        CollbenchError: another backend or library file, or a variable outside the registry.
    """
    wrong = ""
    if job.backend != backend:
        wrong = f"backend {job.backend!r:.80}, not {backend!r}"
    elif job.nccl_lib is not None and not Path(job.nccl_lib).name.startswith("libnccl"):
        wrong = f"library file {job.nccl_lib!r:.120}"
    elif ":" not in backend:  # another backend's settings are its own affair
        names = set().union(job.settings, job.baseline, *job.communicators)
        unknown = sorted(names - set(registry())) if names else []
        wrong = f"variable {unknown[0]!r:.80}" if unknown else ""
    if wrong:
        raise CollbenchError(
            f"a job with {wrong} came through the control store: refused",
            fix="see who else can reach the store of this launch",
            code=Exit.FAILED,
        )


def _clean(ended: Ended, text: str) -> bool:
    """Return whether the worker ended by itself and says that all went well."""
    if ended.exit_code != 0:
        return False
    try:
        return all(part["outcome"] == "ok" for part in json.loads(text)["parts"])
    except (json.JSONDecodeError, KeyError, TypeError):
        return False


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _library_log(folder: Path) -> str:
    return "".join(_read(path) for path in sorted(folder.glob("nccl.*.log")))[: 8 << 20]


def last_line(log: Path) -> str:
    """Return the last line of a log that says something, printable, at most 200 characters.

    Open MPI frames what it says in lines of dashes.
    """
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    text = next((line.strip() for line in reversed(lines) if line.strip(" -*=\t")), "")
    return "".join(char for char in text if char.isprintable())[:200]
