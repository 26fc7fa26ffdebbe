"""The emitted env file is read back by the programs themselves."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from collbench.emit import render
from collbench.knobs import registry
from collbench.profiles import MARKERS, Profile, sealed
from collbench.profiles.env_file import env_text, representable
from collbench.profiles.store import Reference

pytestmark = pytest.mark.dist
GENERATOR = Path("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")
SHOW = "import os, sys; sys.stdout.write('\\0'.join(f'{k}={v}' for k, v in os.environ.items()))"


def every_setting() -> dict[str, str]:
    """One value of every registered variable, and values with every allowed character."""
    chosen = {}
    for name, entry in registry().items():
        value = next(iter(entry.candidates), None) or entry.default or "LL,Simple"
        if name not in MARKERS and representable(value):
            chosen[name] = value
    chosen["NCCL_DEBUG_FILE"] = "/var/log/nccl.%h.%p.log"
    chosen["NCCL_CTA_POLICY"] = "a-B_1.,:/+@%^z"
    chosen["NCCL_PROTO"] = "^LL128"
    chosen["OMPI_MCA_smsc"] = "^cma"
    return chosen


PROFILE = sealed(Profile(settings=every_setting(), pinned={"NCCL_NVLS_ENABLE": "0"}))
WANTED = {
    **PROFILE.settings,
    **PROFILE.pinned,
    "COLLBENCH_PROFILE": PROFILE.id,
    "SPT_NOENV": "1",
}


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    path = tmp_path / "profile.env"
    path.write_text(env_text(PROFILE))
    return path


def shell(name: str) -> list[str]:
    if name == "busybox":
        found = shutil.which("busybox")
        return [found, "sh"] if found else []
    found = shutil.which(name)
    return [found] if found else []


def sourced(name: str, script: str, tmp_path: Path) -> dict[str, str]:
    command = shell(name)
    if not command:
        pytest.skip(f"no {name} here: apt-get install {name}")
    done = subprocess.run(
        [*command, "-c", f'{script}\nexec "$PYTHON" -c "$SHOW"'],
        env={"PYTHON": sys.executable, "SHOW": SHOW, "ZDOTDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    pairs = dict(pair.split("=", 1) for pair in done.stdout.split("\0"))
    return {name: value for name, value in pairs.items() if name in registry()}


@pytest.mark.parametrize("name", ["sh", "dash", "bash", "zsh", "busybox"])
def test_shells_read_the_env_file(name: str, env_file: Path, tmp_path: Path) -> None:
    assert sourced(name, f"set -a; . {env_file}; set +a", tmp_path) == WANTED


@pytest.mark.parametrize("name", ["sh", "dash", "bash", "zsh", "busybox"])
def test_shells_read_the_exports_of_values_the_file_cannot_hold(name: str, tmp_path: Path) -> None:
    odd = {
        "NCCL_ALGO": "allreduce:ring;allgather:ring",
        "NCCL_THREAD_THRESHOLDS": "8 8 64 8 8 64",
        "NCCL_DEBUG_FILE": "/x/$HOME/`id`/'\"\\!~#",
        "NCCL_SYM_KERNEL": "=x",
    }
    text = render("shell", Reference(path=Path("/x.env"), values=odd, profile=None))
    (tmp_path / "x.sh").write_text(text)
    assert sourced(name, ". ./x.sh", tmp_path) == odd


def test_systemd_s_own_parser_reads_it(env_file: Path, tmp_path: Path) -> None:
    """The environment.d generator uses systemd's parser of environment files."""
    if not GENERATOR.exists():
        pytest.skip(f"no {GENERATOR} here: apt-get install systemd")
    folder = tmp_path / "environment.d"
    folder.mkdir()
    shutil.copy(env_file, folder / "90-profile.conf")
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run([GENERATOR], env=environ, capture_output=True, text=True, check=True)
    pairs = dict(line.split("=", 1) for line in done.stdout.splitlines())
    # Its output is quoted for a shell where a value holds more than plain characters.
    assert {n: _unescaped(v) for n, v in pairs.items() if n in WANTED} == WANTED


def _unescaped(value: str) -> str:
    if value.startswith("$'") and value.endswith("'"):
        return value[2:-1].encode().decode("unicode_escape")
    return value


def test_python_dotenv_reads_it(env_file: Path) -> None:
    dotenv = pytest.importorskip("dotenv")
    assert dict(dotenv.dotenv_values(env_file)) == WANTED


def test_env_reads_it_as_arguments(env_file: Path) -> None:
    """What docker does with each line: NAME=VALUE, taken as it stands."""
    lines = [line for line in env_file.read_text().split("\n") if line and line[0] != "#"]
    done = subprocess.run(["env", "-i", *lines], capture_output=True, text=True, check=True)
    assert dict(line.split("=", 1) for line in done.stdout.splitlines()) == WANTED
