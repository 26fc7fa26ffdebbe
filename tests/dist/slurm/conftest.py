"""A real Slurm for the tests: controller, munge and two nodes in namespaces of their own.

Network, mounts, host name and processes are private: nothing listens on this machine's
interfaces, nothing is written outside the test's folder, and when the first process of the
namespace ends the kernel ends all the others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from collbench.parent_death import die_with_parent

HOST = "ctl"
CONF = """
ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=cred_expire=20
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/prolog
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobcomp.txt
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
SlurmctldTimeout=300
SlurmdTimeout=300
InactiveLimit=0
KillWait=3
MinJobAge=300
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=2 RealMemory=4000
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""
PROLOG = """#!/bin/sh
# two nodes on one machine: each has temporary files of its own, and with them the lock
echo "export TMPDIR={folder}/tmp.$SLURMD_NODENAME"
"""
INIT = """
set -e
mount --make-rprivate /
hostname {host}
ip link set lo up
# an address beyond loopback: without one getaddrinfo finds Slurm nothing to listen on
ip link add v0 type veth peer name v1
ip addr add 10.78.0.1/24 dev v0
ip link set v0 up
printf '127.0.0.1 localhost {host} n1 n2\\n' > {folder}/hosts
mount --bind {folder}/hosts /etc/hosts
for d in /run/munge /var/log/munge /var/lib/munge; do
  mkdir -p $d
  mount -t tmpfs none $d
  chown munge:munge $d
done
chmod 755 /run/munge
runuser -u munge -- /usr/sbin/munged
slurmctld
slurmd -N n1
slurmd -N n2
echo up
sleep infinity &
wait  # as the first process of its namespace, bash reaps what others leave
"""
NEEDED = ("slurmctld", "slurmd", "munged", "unshare", "nsenter", "ip")


class Slurm:
    """Runs commands inside the namespaces of the controller."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.folder = folder
        self.pid = pid
        self.environ = {
            "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(folder / "slurm.conf"),
            "OMP_NUM_THREADS": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }

    def popen(
        self, *command: str, cwd: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a command inside; it dies with the tests."""
        parent = os.getpid()
        return subprocess.Popen(
            [*("nsenter", "-t", str(self.pid), "-a", f"--wd={cwd}", "--"), *command],
            env={**self.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: die_with_parent(parent),
        )

    def run(
        self,
        *command: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside and return how it ended."""
        process = self.popen(*command, cwd=cwd or self.folder, env=env)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"{' '.join(command)}: no end within {timeout:g} s\n{out}\n{err}")
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def check(self, *command: str, cwd: Path | None = None) -> str:
        """Run a command that must succeed and return its output."""
        done = self.run(*command, cwd=cwd)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def wait(self, job: str, timeout: float = 180.0) -> str:
        """Wait for the end of a job and return its state."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            states = {
                word.split("=", 1)[1]
                for word in self.check("scontrol", "show", "job", "-o", job).split()
                if word.startswith("JobState=")
            }
            if not states & {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"}:
                return ",".join(sorted(states))
            time.sleep(0.2)
        pytest.fail(f"job {job} does not end:\n{self.check('scontrol', 'show', 'job', job)}")


def until(condition: Callable[[], bool], timeout: float, what: str) -> None:
    """Wait until `condition` holds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"{what}: not within {timeout:g} s")
        time.sleep(0.1)


def require(programs: Sequence[str], package: str) -> None:
    """Skip where these tests cannot run; fail where their packages could have been installed."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("needs root on Linux: namespaces of its own")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in programs if shutil.which(name, path=path) is None]
    if missing and shutil.which("apt-get"):
        pytest.fail(f"not installed: {', '.join(missing)}; apt-get install {package}")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this root may not make network namespaces")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    require(NEEDED, "slurm-wlm munge iproute2")
    folder = tmp_path_factory.mktemp("slurm")
    folder.chmod(0o755)
    for name in ("state", "tmp.n1", "tmp.n2"):
        (folder / name).mkdir()
    (folder / "prolog").write_text(PROLOG.format(folder=folder))
    (folder / "prolog").chmod(0o755)
    (folder / "slurm.conf").write_text(CONF.format(host=HOST, folder=folder))
    (folder / "init.sh").write_text(INIT.format(host=HOST, folder=folder))
    parent = os.getpid()
    errors = (folder / "init.err").open("w")
    outer = subprocess.Popen(
        [
            *("unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc"),
            *("--fork", "--kill-child", "bash", str(folder / "init.sh")),
        ],
        env={
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        },
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
        bed = Slurm(folder, int(inner))
        until(
            lambda: bed.run("sinfo", "-h", "-o", "%D %t").stdout.strip() == "2 idle",
            30,
            "both nodes idle",
        )
        yield bed
    finally:
        outer.kill()  # --kill-child takes the first process of the namespace, and that all others
        outer.communicate()
        errors.close()
