"""Where a study lies: SQLite on one machine, or a storage that many nodes reach.

A URL names it: ``sqlite:///FILE``; ``journal:FILE`` on a shared file system;
``postgresql://USER@HOST/DB`` (also MySQL); ``grpc://HOST:PORT``, Optuna's proxy in front of a
database, for more nodes than it takes connections.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from collbench.errors import CollbenchError
from collbench.search import shared

_SERVER = re.compile(r"(postgresql|mysql)(\+[a-z0-9]+)?://")
_GRPC = re.compile(r"grpc://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
DRIVERS = ("psycopg", "psycopg2")


def is_shared(url: str) -> bool:
    """Return whether several nodes may search one study there."""
    return url.startswith(("journal:", "grpc://")) or _SERVER.match(url) is not None


def open_shared(url: str) -> BaseStorage:
    """Return the storage of a URL that `is_shared`.

    Args:
        url: See this module.

    Raises:
        CollbenchError: a driver is missing, or the URL is not of one of these forms.
    """
    if url.startswith("journal:"):
        path = Path(url.removeprefix("journal:").removeprefix("//")).expanduser().absolute()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return JournalStorage(MendingJournal(str(path)))
        except OSError as error:
            raise CollbenchError(
                f"--storage journal:{path}: {error.strerror}",
                fix="give a file on a file system that every node sees",
            ) from error
    if _SERVER.match(url):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return RDBStorage(
                with_driver(url),
                heartbeat_interval=max(1, round(shared.BEAT_S)),
                grace_period=max(1, round(shared.STALE_S)),
                heartbeat_stale_trial_callback=shared.retry,
                # a connection a server closed in the night must not end a sweep
                engine_kwargs={"pool_pre_ping": True, "pool_size": 2, "max_overflow": 4},
            )
    return _proxy(url)


def with_driver(url: str) -> str:
    """Return a PostgreSQL URL with a driver that is installed.

    Raises:
        CollbenchError: none is.
    """
    if not url.startswith("postgresql://"):
        return url
    for name in DRIVERS:
        if importlib.util.find_spec(name) is not None:
            return url.replace("postgresql://", f"postgresql+{name}://", 1)
    raise CollbenchError(
        "--storage postgresql: no driver for Python is installed",
        fix="pip install 'collbench[cluster]'",
    )


def _proxy(url: str) -> BaseStorage:
    match = _GRPC.fullmatch(url)
    if match is None:
        raise CollbenchError(f"--storage {url!r} is not grpc://HOST:PORT")
    if importlib.util.find_spec("grpc") is None:
        raise CollbenchError(
            "--storage grpc: grpcio is not installed", fix="pip install 'collbench[cluster]'"
        )
    proxy = optuna.storages.GrpcStorageProxy(host=match[1], port=int(match[2]))
    try:
        proxy.wait_server_ready(timeout=30)
    except Exception as error:
        raise CollbenchError(
            f"--storage {url}: no proxy answers", fix="start it: see docs/clusters.md"
        ) from error
    return proxy


class MendingJournal(JournalFileBackend):  # type: ignore[misc]
    """Optuna's journal file, which a writer that was killed in the middle of a line cannot break.

    Optuna appends to a torn last line, and no node can read the journal from then on. Under the
    writer's lock a last line without its end can only be torn, and nobody has read it: it goes.
    """

    _lock: Any

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append, behind the last whole line."""
        with _locked(self._lock):
            with open(self._file_path, "rb+") as file:  # noqa: PTH123 - as in the base class
                end = _last_whole_line(file)
                file.truncate(end)
            lock, self._lock = self._lock, _Held()
            try:
                super().append_logs(logs)
            finally:
                self._lock = lock


class _Held:
    """The lock is held already."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return


@contextmanager
def _locked(lock: Any) -> Iterator[None]:
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _last_whole_line(file: Any) -> int:
    """Return the offset behind the last end of a line."""
    size = end = file.seek(0, 2)
    while end:
        start = max(0, end - 65536)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return int(start + found + 1)
        end = start
    return 0 if size else size
