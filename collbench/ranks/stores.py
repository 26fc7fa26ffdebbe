"""The control store: a small key-value store all ranks of a launch reach."""

from __future__ import annotations

import socket
import time
from datetime import timedelta
from typing import Any, Protocol

from collbench.errors import CollbenchError, Exit

_LEAVE_WAIT_S = 60.0


class ControlStore(Protocol):
    """Values are text (JSON), never pickles: it may listen where others can reach it."""

    host: str
    port: int
    hosts: tuple[str, ...]
    """Host of every rank, by rank."""

    def set(self, key: str, value: str) -> None:
        """Publish `value`."""
        ...

    def get(self, key: str, timeout_s: float) -> str | None:
        """Return the value once it is there, or None when the time is up."""
        ...

    def has(self, keys: list[str]) -> bool:
        """Return whether every key is there, at once."""
        ...

    def delete(self, key: str) -> None:
        """Forget a key."""
        ...

    def leave(self) -> None:
        """Say that this rank needs the store no more; its host waits for the others to say so."""
        ...


class TorchStore:
    """torch's TCPStore: the one torchrun hosts, or one that rank 0 hosts.

    Args:
        host: Where it listens.
        port: Its port.
        prefix: Of every key.
        listen: A bound socket: this process hosts the store on it. Without it: a client.
        timeout_s: For connecting.

    Raises:
        CollbenchError: nobody answers, or torch is missing.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        prefix: str = "collbench",
        listen: socket.socket | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        try:
            import torch.distributed as dist
        except ImportError as error:
            raise CollbenchError(
                f"the store between the ranks needs torch: {error}", fix="pip install torch"
            ) from error
        self.host = host
        self.port = port
        self.hosts: tuple[str, ...] = ()
        self.rank = 0
        self._hosted = listen is not None
        extra: dict[str, Any] = {}
        if listen is not None:
            # torch would listen on all interfaces; it takes over a socket that is bound to one
            extra = {"master_listen_fd": listen.detach(), "wait_for_workers": False}
        try:
            client = dist.TCPStore(
                host,
                port,
                is_master=self._hosted,
                timeout=timedelta(seconds=timeout_s),
                **extra,
            )
        except (RuntimeError, OSError) as error:
            raise CollbenchError(
                f"the store of the launcher at {host}:{port} does not answer: {_line(error)}",
                fix="check MASTER_ADDR and MASTER_PORT, and that rank 0 has started",
                code=Exit.FAILED,
            ) from error
        self._store = dist.PrefixStore(prefix, client)

    def set(self, key: str, value: str) -> None:
        """Publish `value`."""
        self._store.set(key, value)

    def get(self, key: str, timeout_s: float) -> str | None:
        """Return the value once it is there, or None when the time is up.

        Raises:
            CollbenchError: the process that hosts the store is gone.
        """
        try:
            if not self._store.check([key]):
                self._store.wait([key], timedelta(seconds=timeout_s))
            return bytes(self._store.get(key)).decode()
        except RuntimeError as error:
            if "timeout" in str(error).lower():
                return None
            raise CollbenchError(
                f"the store at {self.host}:{self.port} is gone: {_line(error)}",
                fix="look at the output of rank 0 and of the launcher",
                code=Exit.FAILED,
            ) from error

    def has(self, keys: list[str]) -> bool:
        """Return whether every key is there, at once."""
        return bool(self._store.check(keys))

    def delete(self, key: str) -> None:
        """Forget a key."""
        self._store.delete_key(key)

    def claim(self, key: str, value: str) -> str:
        """Publish `value` unless somebody has published under `key`; return what is there."""
        return bytes(self._store.compare_set(key, "", value)).decode()

    def leave(self) -> None:
        """Say goodbye; the host stays until every rank has, for at most a minute."""
        try:
            self._store.set(f"bye/{self.rank}", "1")
            if not self._hosted:
                return
            keys = [f"bye/{rank}" for rank in range(len(self.hosts))]
            end = time.monotonic() + _LEAVE_WAIT_S
            while not self._store.check(keys) and time.monotonic() < end:
                time.sleep(0.02)
        except RuntimeError:
            return  # its host has left already: there is nobody to say it to


class LocalStore:
    """The store of a launch of one process."""

    host = ""
    port = 0

    def __init__(self) -> None:
        self.hosts: tuple[str, ...] = (socket.gethostname(),)
        self._values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        """Publish `value`."""
        self._values[key] = value

    def get(self, key: str, timeout_s: float) -> str | None:
        """Return the value if it is there."""
        return self._values.get(key)

    def has(self, keys: list[str]) -> bool:
        """Return whether every key is there."""
        return all(key in self._values for key in keys)

    def delete(self, key: str) -> None:
        """Forget a key."""
        self._values.pop(key, None)

    def leave(self) -> None:
        """Nobody else is there."""


def _line(error: BaseException) -> str:
    """Return the first line of torch's message: a C++ stack trace follows it."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
