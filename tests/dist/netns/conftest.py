"""Two hosts for the tests: network namespaces joined by a cable whose speed can be set.

They have names, addresses and a hosts file of their own, and live in namespaces of processes and
mounts that end with the test session. A fake ssh (`agent`) lets mpirun start its daemons there.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from collbench.parent_death import die_with_parent

INIT = """
set -e
mount --make-rprivate /
mkdir -p /run/netns
mount -t tmpfs none /run/netns
printf '127.0.0.1 localhost\\n10.77.0.1 h0\\n10.77.0.2 h1\\n' > {folder}/hosts
mount --bind {folder}/hosts /etc/hosts
: > {folder}/resolv.conf  # a name server nobody reaches would be asked for every name
mount --bind {folder}/resolv.conf /etc/resolv.conf
ip link set lo up
ip netns add h0
ip netns add h1
ip link add v0 netns h0 type veth peer name v1 netns h1
for i in 0 1; do
  ip -n h$i addr add 10.77.0.$((i + 1))/24 dev v$i
  ip -n h$i link set v$i up
  ip -n h$i link set lo up
done
echo up
sleep infinity &
wait
"""
AGENT = """#!/bin/bash
# ssh [options] HOST COMMAND: run COMMAND on a host of the test bed
while [[ "$1" == -* ]]; do case "$1" in -o|-p|-l|-i) shift 2;; *) shift;; esac; done
host=$1; shift
export TMPDIR={folder}/tmp.$host
[ -f {folder}/hide.$host ] && hide="mount -t tmpfs none $(cat {folder}/hide.$host);"
exec ip netns exec "$host" unshare --uts --mount bash -c "hostname $host; $hide $*"
"""
NEEDED = ("ip", "tc", "unshare", "nsenter")


class Hosts:
    """Runs commands on h0 and h1."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.folder = folder
        self.pid = pid
        self.agent = folder / "agent"
        self.environ = {
            "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PRTE_MCA_plm_ssh_agent": str(self.agent),
            # mpirun hides PRTE_MCA_* from its ranks, and rank 0 starts another one;
            # both hosts share the cores of one machine: bound to core 0 of theirs, or polling,
            # the ranks would wait for each other's time slices
            "COLLBENCH_MPIRUN_ARGS": f"--bind-to none --prtemca plm_ssh_agent {self.agent}",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }

    def popen(
        self, host: str, *command: str, cwd: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a command on a host; it dies with the tests."""
        parent = os.getpid()
        return subprocess.Popen(
            [
                *("nsenter", "-t", str(self.pid), "-a", f"--wd={cwd}", "--"),
                *(str(self.agent), host, "exec", shlex.join(command)),
            ],
            env={**self.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: die_with_parent(parent),
        )

    def run(
        self,
        host: str,
        *command: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        timeout: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host and return how it ended."""
        process = self.popen(host, *command, cwd=cwd, env=env)
        return subprocess.CompletedProcess(command, *self.end(process, timeout))

    @staticmethod
    def end(process: subprocess.Popen[str], timeout: float = 120.0) -> tuple[int, str, str]:
        """Wait for a command; return its exit code and output."""
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"no end within {timeout:g} s\n{out}\n{err}")
        return process.returncode, out, err

    def link(self, rate: str | None) -> None:
        """Set the speed of the cable, both ways, for example ``1gbit``; None: as fast as it is."""
        for i in range(2):
            tc = ["tc", "-n", f"h{i}", "qdisc"]
            words = ["replace", "dev", f"v{i}", "root", "tbf", "rate", rate or ""]
            words += ["burst", "64kb", "latency", "100ms"]
            if rate is None:
                words = ["del", "dev", f"v{i}", "root"]
            done = subprocess.run(
                [*("nsenter", "-t", str(self.pid), "-a", "--"), *tc, *words],
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0 or rate is None, done.stderr


def require() -> None:
    """Skip where namespaces cannot be had; fail where the package could have been installed."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux: namespaces of its own")
    missing = [name for name in NEEDED if shutil.which(name, path="/usr/sbin:/usr/bin") is None]
    if missing and shutil.which("apt-get"):
        pytest.fail(f"not installed: {', '.join(missing)}; apt-get install iproute2")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode:
        pytest.skip("this root may not make network namespaces")


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    require()
    folder = tmp_path_factory.mktemp("hosts")
    for name in ("tmp.h0", "tmp.h1"):
        (folder / name).mkdir()
    (folder / "agent").write_text(AGENT.replace("{folder}", str(folder)))
    (folder / "agent").chmod(0o755)
    (folder / "init.sh").write_text(INIT.format(folder=folder))
    parent = os.getpid()
    errors = (folder / "init.err").open("w")
    outer = subprocess.Popen(
        [
            *("unshare", "--net", "--mount", "--uts", "--pid", "--mount-proc"),
            *("--fork", "--kill-child", "bash", str(folder / "init.sh")),
        ],
        env={**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        preexec_fn=lambda: die_with_parent(parent),
    )
    try:
        assert outer.stdout is not None
        said = outer.stdout.readline().strip()
        assert said == "up", (folder / "init.err").read_text()
        inner = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0]
        yield Hosts(folder, int(inner))
    finally:
        outer.kill()  # --kill-child takes the first process of the namespace, and that all others
        outer.communicate()
        errors.close()
