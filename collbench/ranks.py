"""Which launcher started this process, which rank it is, and the store between the ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Protocol

from collbench.errors import CollbenchError, Exit

Launcher = Literal["torchrun", "mpirun", "srun", "none"]

_LAUNCHER_PREFIXES = (
    "TORCHELASTIC_",
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_",
    "OMPI_APP_CTX_",
    "OMPI_FILE_",
    "OMPI_FIRST_",
    "OMPI_NUM_APP_",
    "OMPI_ARGV",
    "OMPI_COMMAND",
    "OMPI_MCA_ess_",
    "OMPI_MCA_orte_",
    "PMIX_",
    "PMI_",
    "PRTE_MCA_prte_ess_",
    "HYDRA_",
    "HYDI_",
    "MPI_LOCAL",
)
_LAUNCHER_NAMES = frozenset(
    {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_NAME",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "PRTE_LAUNCHED",
        "COLLBENCH_FRONT",
    }
)


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what a launcher put there for its own processes.

    A trial's processes form a group of their own: with TORCHELASTIC_USE_AGENT_STORE inherited,
    its rank 0 would become a client of a store that nobody hosts, and hang.
    """
    return {
        name: value
        for name, value in environ.items()
        if name not in _LAUNCHER_NAMES and not name.startswith(_LAUNCHER_PREFIXES)
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """What a launcher told this process about itself."""

    launcher: Launcher
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int
    nnodes: int


def detect(environ: Mapping[str, str] | None = None) -> Launch:
    """Return this process's place, from the environment of whichever launcher started it.

    Raises:
        CollbenchError: a variable is missing or no number.
    """
    env = os.environ if environ is None else environ
    if "TORCHELASTIC_RUN_ID" in env or ("RANK" in env and "WORLD_SIZE" in env):
        world, local_world = _int(env, "WORLD_SIZE"), _int(env, "LOCAL_WORLD_SIZE", default=1)
        return Launch(
            launcher="torchrun",
            rank=_int(env, "RANK"),
            world_size=world,
            local_rank=_int(env, "LOCAL_RANK", default=0),
            local_world_size=local_world,
            node_rank=_int(env, "GROUP_RANK", default=0),
            nnodes=_int(env, "GROUP_WORLD_SIZE", default=max(1, world // local_world)),
        )
    return Launch(
        launcher="none",
        rank=0,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        node_rank=0,
        nnodes=1,
    )


def _int(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise CollbenchError(
            f"environment: {name}={text!r} is not a number",
            fix="start with `collbench MODULE`, or torchrun -m collbench.MODULE",
        ) from None


class ControlStore(Protocol):
    """A small key-value store all ranks reach; values are text (JSON), never pickles."""

    host: str
    port: int

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


class TorchStore:
    """The store that torchrun itself hosts; every rank is a client of it."""

    def __init__(self, host: str, port: int, *, timeout_s: float = 60.0) -> None:
        import torch.distributed as dist

        self.host = host
        self.port = port
        try:
            client = dist.TCPStore(
                host, port, is_master=False, timeout=timedelta(seconds=timeout_s)
            )
        except (RuntimeError, OSError) as error:
            raise CollbenchError(
                f"the store of the launcher at {host}:{port} does not answer: {error}",
                fix="start with torchrun, and check MASTER_ADDR and MASTER_PORT",
                code=Exit.FAILED,
            ) from error
        self._store = dist.PrefixStore("collbench", client)

    def set(self, key: str, value: str) -> None:
        """Publish `value`."""
        self._store.set(key, value)

    def get(self, key: str, timeout_s: float) -> str | None:
        """Return the value once it is there, or None when the time is up."""
        if not self._store.check([key]):
            try:
                self._store.wait([key], timedelta(seconds=timeout_s))
            except RuntimeError as error:
                if "timeout" in str(error).lower():
                    return None
                raise
        return bytes(self._store.get(key)).decode()

    def has(self, keys: list[str]) -> bool:
        """Return whether every key is there, at once."""
        return bool(self._store.check(keys))

    def delete(self, key: str) -> None:
        """Forget a key."""
        self._store.delete_key(key)


class LocalStore:
    """The store of a launch of one process."""

    host = ""
    port = 0

    def __init__(self) -> None:
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


def open_store(launch: Launch, environ: Mapping[str, str] | None = None) -> ControlStore:
    """Open the control store of this launch; every rank must call it.

    Starts threads: fork first, open after.

    Raises:
        CollbenchError: the store does not answer.
    """
    env = os.environ if environ is None else environ
    if launch.launcher == "none":
        return LocalStore()
    return TorchStore(env["MASTER_ADDR"], _int(env, "MASTER_PORT"))
