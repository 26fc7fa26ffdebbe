"""How the ranks of a launch meet: who hosts the control store, where, and the roll call.

torchrun hosts a store itself. Otherwise rank 0 hosts one, and its address travels by MPI where
mpirun started the ranks; in a step of Slurm every rank derives it from the step, so that neither
a shared folder nor MPI is needed; with variables set by hand it is MASTER_ADDR and MASTER_PORT.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
import time
import zlib
from collections.abc import Mapping

from collbench.errors import CollbenchError, Exit
from collbench.ranks.launchers import Launch
from collbench.ranks.roll import call_roll
from collbench.ranks.stores import ControlStore, LocalStore, TorchStore

_MEET_S = 60.0
"""How long a rank that started early waits for the last one."""
_FIRST_PORT = 20000
"""Below the ports a kernel hands out by itself (32768 on Linux)."""
_PORTS = 10000
_TRIES = 8
_NAME_BYTES = 256
_BTL = "OMPI_MCA_btl"


def open_store(
    launch: Launch, environ: Mapping[str, str] | None = None, *, meet_s: float = _MEET_S
) -> ControlStore:
    """Open the control store of this launch and call the roll; every rank must call it.

    Starts threads, and MPI under mpirun: fork first, open after.

    Args:
        launch: This process's place.
        environ: Its environment; None: this process's.
        meet_s: How long to wait for the other ranks, in seconds.

    Raises:
        CollbenchError: the store does not answer, a rank is missing, or two processes are one rank.
    """
    env = os.environ if environ is None else environ
    name = host_name(env)
    if launch.launcher == "none" or (launch.world_size == 1 and launch.launcher != "torchrun"):
        return LocalStore()
    if launch.launcher == "torchrun":
        restart = env.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = TorchStore(*_master(env), prefix=f"collbench/{restart}")
    elif launch.launcher == "mpirun":
        store = _by_mpi(launch, name)
    elif launch.launcher == "srun" and "MASTER_ADDR" not in env:
        store = _by_step(launch, env, meet_s)
    elif launch.rank == 0:
        host, port = _master(env)
        store = TorchStore(host, port, listen=_listen(host, port))
    else:
        store = TorchStore(*_master(env), timeout_s=meet_s)
    store.rank = launch.rank
    store.hosts = call_roll(launch, store, name, meet_s)
    return store


def host_name(environ: Mapping[str, str]) -> str:
    """Return the name of this host, as Slurm spells it inside a job."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname()


def _master(env: Mapping[str, str]) -> tuple[str, int]:
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    if not host or not port.isdigit():
        raise CollbenchError(
            f"environment: MASTER_ADDR={host!r} and MASTER_PORT={port!r} do not name a store",
            fix="start with torchrun, mpirun or srun, or export both on every rank",
        )
    return host, int(port)


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on one address only, not on every interface.

    Raises:
        OSError: the address is not of this host, or the port is taken.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(1024)
    except OSError:
        sock.close()
        raise
    return sock


def _own_address() -> str:
    """Return the address other hosts reach this one at: what its name resolves to."""
    name = socket.gethostname()
    with contextlib.suppress(OSError):
        found = socket.gethostbyname(name)
        if not found.startswith("127."):
            return found
    import psutil

    for interface in psutil.net_if_addrs().values():
        for entry in interface:
            if entry.family == socket.AF_INET and not entry.address.startswith("127."):
                return str(entry.address)
    raise CollbenchError(
        f"host {name} has no address that another host could reach",
        fix="give it one in DNS or /etc/hosts, or start with torchrun --rdzv-endpoint",
    )


def _by_mpi(launch: Launch, name: str) -> TorchStore:
    """Let rank 0 host a store and tell its address by MPI, which ends again at once.

    A rank of mpirun may call MPI_Init only once and would spin in MPI_Finalize until the last
    rank comes: so all of them finalize here, and nothing of MPI disturbs the trials.
    """
    import mpi4py

    mpi4py.rc.initialize = False
    mpi4py.rc.finalize = False
    # excluding btl/ofi cuts MPI_Init of Open MPI from 1.15 s to 0.15 s; trials do not inherit it
    ours = _BTL not in os.environ
    if ours:
        os.environ[_BTL] = "^ofi"
    try:
        from mpi4py import MPI

        MPI.Init()
    finally:
        if ours:
            del os.environ[_BTL]
    comm = MPI.COMM_WORLD
    if (comm.Get_rank(), comm.Get_size()) != (launch.rank, launch.world_size):
        raise CollbenchError(
            f"mpirun says rank {launch.rank} of {launch.world_size}, the MPI of mpi4py "
            f"({MPI.Get_library_version().split(',')[0][:60]}) says rank {comm.Get_rank()} of "
            f"{comm.Get_size()}: they are not the same MPI",
            fix=f"use the mpirun that belongs to {sys.executable}",
        )
    mine = bytearray(name.encode()[: _NAME_BYTES - 1].ljust(_NAME_BYTES, b"\0"))
    every = bytearray(_NAME_BYTES * launch.world_size)
    comm.Allgather([mine, MPI.BYTE], [every, MPI.BYTE])
    hosts = {
        bytes(every[i : i + _NAME_BYTES]).rstrip(b"\0") for i in range(0, len(every), _NAME_BYTES)
    }
    message = bytearray(_NAME_BYTES)
    listen: socket.socket | None = None
    if launch.rank == 0:
        host = "127.0.0.1" if len(hosts) == 1 else _own_address()
        listen = _listen(host, 0)
        plain = json.dumps([host, listen.getsockname()[1]]).encode()
        message[: len(plain)] = plain
    comm.Bcast([message, MPI.BYTE], root=0)
    MPI.Finalize()
    host, port = json.loads(bytes(message).rstrip(b"\0"))
    return TorchStore(host, port, listen=listen)


def _by_step(launch: Launch, env: Mapping[str, str], meet_s: float) -> TorchStore:
    """Let rank 0 host a store on one of a few ports that follow from the step's identity."""
    identity = ".".join(
        env.get(name, "0") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    )
    start = zlib.crc32(identity.encode())
    ports = [_FIRST_PORT + (start + 1237 * i) % _PORTS for i in range(_TRIES)]
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST") or ""
    host = "127.0.0.1" if launch.nnodes == 1 else first_host(nodes)
    if launch.rank == 0:
        store = _host_one_of(host, ports)
        store.set("step", identity)
        return store
    end = time.monotonic() + meet_s
    while time.monotonic() < end:
        for port in ports:
            if not _answers(host, port):
                continue
            store = TorchStore(host, port, timeout_s=5.0)
            if store.get("step", timeout_s=5.0) == identity:
                return store
        time.sleep(0.1)
    raise CollbenchError(
        f"rank {launch.rank}: no store of step {identity} at {host}, ports {ports}",
        fix="look at the output of rank 0; or export MASTER_ADDR and MASTER_PORT before srun",
        code=Exit.FAILED,
    )


def _host_one_of(host: str, ports: list[int]) -> TorchStore:
    reason: OSError | None = None
    for port in ports:
        try:
            listen = _listen(host, port)
        except OSError as error:
            reason = error
            continue
        return TorchStore(host, port, listen=listen)
    raise CollbenchError(
        f"the store between the ranks cannot listen at {host}, ports {ports}: {reason}",
        fix="export MASTER_ADDR (an address of rank 0's node) and MASTER_PORT before srun",
        code=Exit.FAILED,
    )


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2.0).close()
    except socket.gaierror as error:
        raise CollbenchError(
            f"node name {host!r} does not resolve: {error}",
            fix="export MASTER_ADDR (an address of the first node) and MASTER_PORT before srun",
        ) from error
    except OSError:
        return False
    return True


def first_host(nodelist: str) -> str:
    """Return the first name of Slurm's short form: ``gpu[03-10,12],x1`` begins with gpu03.

    Raises:
        CollbenchError: it is empty.
    """
    first, depth = "", 0
    for char in nodelist:
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            break
        first += char
    first = re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first).strip()
    if not first:
        raise CollbenchError(
            f"environment: SLURM_STEP_NODELIST={nodelist!r} names no node",
            fix="start with srun, or export MASTER_ADDR and MASTER_PORT",
        )
    return first
