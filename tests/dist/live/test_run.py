"""`collbench run` becomes the command, and says how the launch differs from the measurement."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collbench.live.launch import mismatches
from collbench.profiles import Profile, Scope
from collbench.profiles.store import Reference, load, publish

pytestmark = pytest.mark.dist
RUN = [sys.executable, "-m", "collbench", "run"]
GPU = {"index": 0, "name": "GPU A", "uuid": "GPU-1", "numa_node": 0}
OTHER = {"index": 1, "name": "GPU A", "uuid": "GPU-2", "numa_node": 1}


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    path = tmp_path / "profile.env"
    path.write_text("NCCL_PROTO=LL\nSPT_NOENV=1\n")
    return path


def run(*words: str, env: dict[str, str] | None = None, **more: Any) -> Any:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    return subprocess.run(
        [*RUN, *words], capture_output=True, text=True, env={**clean, **(env or {})}, **more
    )


def test_stdin_output_environment_and_exit_code_are_the_commands_own(env_file: Path) -> None:
    script = "read line; echo $line $NCCL_PROTO $SPT_NOENV; exit 7"
    done = run(str(env_file), "--", "sh", "-c", script, input="hello\n")
    assert (done.stdout, done.returncode) == ("hello LL 1\n", 7)
    assert done.stderr.count("\n") == 1
    assert "NCCL_PROTO=LL" in done.stderr


def test_an_empty_command_is_not_found_and_no_traceback(env_file: Path) -> None:
    done = run(str(env_file), "--", "")
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr.endswith("collbench run: '': not found\n")


def test_a_full_disk_behind_stderr_does_not_keep_a_server_from_starting(env_file: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*RUN, str(env_file), "--", "sh", "-c", "exit 5"], stderr=full)
    assert done.returncode == 5


def test_the_command_keeps_the_pid_and_gets_signals_as_they_were(env_file: Path) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    grep = "grep SigIgn /proc/self/status"
    for command in (["sh", "-c", grep], [sys.executable, "-c", code]):
        direct = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert run(str(env_file), "--", *command).stdout == direct
    process = subprocess.Popen(
        [*RUN, str(env_file), "--", "sh", "-c", "echo $$; exec sleep 60"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert int(process.stdout.readline()) == process.pid
    process.terminate()
    assert process.wait(timeout=10) == -signal.SIGTERM
    process.stdout.close()


def test_nothing_is_given_to_a_shell(env_file: Path, tmp_path: Path) -> None:
    done = run(str(env_file), "--", "echo", "$(touch evil)", "; touch evil", cwd=tmp_path)
    assert done.stdout == "$(touch evil) ; touch evil\n"
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(("command", "code"), [("/no/such", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_start(env_file: Path, command: str, code: int) -> None:
    assert run(str(env_file), "--", command).returncode == code


@pytest.mark.parametrize(
    "line", ["LD_PRELOAD=/x.so", "PATH=/x", "PYTHONSTARTUP=/x.py", "NCCL_TUNER_PLUGIN=/x.so"]
)
def test_what_could_run_code_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "x.env"
    path.write_text(f"{line}\n")
    done = run(str(path), "--", "echo", "started")
    assert (done.returncode, done.stdout) == (125, "")


def test_a_file_that_the_environment_names_already_is_let_through(tmp_path: Path) -> None:
    path = tmp_path / "x.env"
    path.write_text("NCCL_TOPO_FILE=/etc/topo.xml\n")
    assert run(str(path), "--", "true").returncode == 125
    assert run(str(path), "--", "true", env={"NCCL_TOPO_FILE": "/etc/topo.xml"}).returncode == 0
    assert run(str(path), "--", "true", env={"NCCL_TOPO_FILE": "/other"}).returncode == 125


def test_strict_refuses_a_conflict_and_plain_run_says_it(env_file: Path) -> None:
    conflict = {"NCCL_PROTO": "Simple"}
    done = run(str(env_file), "--", "sh", "-c", "echo $NCCL_PROTO", env=conflict)
    assert done.stdout == "LL\n"
    assert "MISMATCH: env.conflict" in done.stderr
    done = run(str(env_file), "--strict", "--", "echo", "started", env=conflict)
    assert (done.returncode, done.stdout) == (125, "")


def reference(tmp_path: Path, **fields: Any) -> Reference:
    profile = Profile(
        settings={"NCCL_MIN_NCHANNELS": "16"},
        scope=Scope(nranks=2),
        machine={"gpus": [GPU, OTHER], "driver": "580.1", "library": "NCCL 2.28.9"},
    )
    return load(publish(tmp_path / "r", "m", dataclasses.replace(profile, **fields)))


def codes(
    ref: Reference, path: Path, environ: dict[str, str] | None = None, **more: Any
) -> list[str]:
    environ = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": str(path), **(environ or {})}
    values = {"gpus": [GPU, OTHER], "driver": "580.1", **more}
    return [m.code for m in mismatches(ref, ["python"], environ, **values)]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "libnccl.so.2.28.9").write_bytes(b"\x7fELF")
    (folder / "libnccl.so.2").symlink_to("libnccl.so.2.28.9")
    return folder


def test_a_launch_as_measured_has_no_mismatch(tmp_path: Path, library: Path) -> None:
    assert codes(reference(tmp_path), library) == []


def test_every_difference_has_its_code(tmp_path: Path, library: Path) -> None:
    baseline = {"NCCL_CUMEM_ENABLE": "0"}
    ref = reference(tmp_path, baseline=baseline, conditions={"like": "sglang"})
    assert codes(ref, library, gpus=[GPU]) == ["topo.gpu_set_changed"]
    assert codes(ref, library, gpus=[GPU, {**OTHER, "uuid": "GPU-9"}]) == ["topo.gpu_set_changed"]
    moved = [GPU, {**OTHER, "numa_node": 0}]
    assert codes(ref, library, gpus=moved) == ["topo.placement_changed"]
    assert codes(ref, library, driver="590.1") == ["stack.driver_changed"]
    assert codes(ref, library, {"NCCL_MIN_NCHANNELS": "4"}) == ["env.conflict"]
    assert codes(ref, library, {"NCCL_CUMEM_ENABLE": "1"}) == ["env.baseline_differs"]
    assert codes(ref, library, {"NCCL_CUMEM_ENABLE": "0"}) == []
    assert codes(ref, library, {"NCCL_ALGO": "Ring"}) == ["env.not_measured"]
    # nobody writes the baseline of a sweep file: it has to stand in the environment
    own = reference(tmp_path, baseline=baseline)
    assert codes(own, library) == ["env.baseline_differs"]
    assert codes(own, library, baseline) == []
    assert codes(ref, library, {"NCCL_DEBUG": "INFO"}) == []
    conf = tmp_path / "nccl.conf"
    conf.write_text("NCCL_ALGO=Ring\nNCCL_MIN_NCHANNELS=2\n")
    found = codes(ref, library, {"NCCL_CONF_FILE": str(conf)})
    assert found == ["env.not_measured", "env.shadowed_by_conf"]


def test_the_library_is_the_one_the_command_will_load(tmp_path: Path, library: Path) -> None:
    ref = reference(tmp_path)
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "libnccl.so.2.30.7").write_bytes(b"")
    (newer / "libnccl.so.2").symlink_to("libnccl.so.2.30.7")
    assert codes(ref, newer) == ["stack.nccl_version_changed"]
    server = {"SGLANG_NCCL_SO_PATH": str(newer / "libnccl.so.2")}
    assert codes(ref, library, server) == ["stack.nccl_version_changed"]
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "libnccl.so.2").write_bytes(b"\x7fELF...NCCL version 2.28.9+cuda13.0\0")
    assert codes(ref, inside) == []
    (inside / "libnccl.so.2").write_bytes(b"\x7fELF")
    assert codes(ref, inside) == ["stack.nccl_unknown"]


def test_the_wheel_of_a_systems_python_is_found(tmp_path: Path) -> None:
    from collbench.live.libraries import version_of, will_load

    packages = tmp_path / "usr/local/lib/python3.12/dist-packages"
    (packages / "nvidia/nccl/lib").mkdir(parents=True)
    (packages / "nvidia/nccl/lib/libnccl.so.2").write_bytes(b"")
    (packages / "nvidia_nccl_cu13-2.28.9.dist-info").mkdir()
    python = tmp_path / "usr/bin/python3"
    python.parent.mkdir()
    python.write_bytes(b"\x7fELF")
    python.chmod(0o755)
    path = will_load("python3", {"PATH": str(python.parent)})
    assert path is not None
    assert version_of(path) == "2.28.9"


def test_the_wheel_beside_the_commands_python_is_found(tmp_path: Path) -> None:
    from collbench.live.libraries import version_of, will_load

    packages = tmp_path / "venv/lib/python3.12/site-packages"
    (packages / "nvidia/nccl/lib").mkdir(parents=True)
    (packages / "nvidia/nccl/lib/libnccl.so.2").write_bytes(b"")
    (packages / "nvidia_nccl_cu13-2.28.9.dist-info").mkdir()
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    script = tmp_path / "venv/bin/vllm"
    script.write_text(f"#!{python}\n")
    script.chmod(0o755)
    for command in (str(python), str(script), "vllm"):
        path = will_load(command, {"PATH": str(script.parent)})
        assert path is not None
        assert version_of(path) == "2.28.9"


def test_a_profile_edited_in_both_its_files_is_told_from_what_was_measured(tmp_path: Path) -> None:
    made = Profile(settings={"NCCL_PROTO": "LL"}, created="2026-01-02T03:04:05Z", backend="nccl")
    path = publish(tmp_path, "node1", made)
    assert not mismatches(load(path), ["true"], {})
    for name, old, new in (
        ("profile.env", "=LL\n", "=Simple\n"),
        ("profile.json", '"LL"', '"Simple"'),
    ):
        text = (path / name).read_text()
        assert text.count(old) == 1
        (path / name).write_text(text.replace(old, new))
    assert [m.code for m in mismatches(load(path), ["true"], {})] == ["env.profile_edited"]
    assert run("--strict", str(path), "--", "true").returncode == 125
