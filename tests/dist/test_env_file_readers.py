"""The emitted env file is read back by the programs themselves."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from collbench.emit import render
from collbench.knobs import registry
from collbench.profiles import MARKERS, Profile, sealed
from collbench.profiles.env_file import env_text, representable
from collbench.profiles.store import Reference

pytestmark = pytest.mark.dist
PINNED = {"NCCL_NVLS_ENABLE": "0"}
ODD = {
    "NCCL_ALGO": "allreduce:ring;allgather:ring",
    "NCCL_THREAD_THRESHOLDS": "8 8 64 8 8 64",
    "NCCL_DEBUG_FILE": "/x/$HOME/`id`/'\"\\!~#%h",
    "NCCL_SYM_KERNEL": "=x",
}
"""Values that the universal file cannot hold."""
GENERATOR = Path("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")
SHOW = "import os, sys; sys.stdout.write('\\0'.join(f'{k}={v}' for k, v in os.environ.items()))"


def every_setting() -> dict[str, str]:
    """One value of every registered variable, and values with every allowed character."""
    chosen = {}
    for name, entry in registry().items():
        value = next(iter(entry.candidates), None) or entry.default or "LL,Simple"
        if name not in (*MARKERS, *PINNED) and representable(value):
            chosen[name] = value
    chosen["NCCL_DEBUG_FILE"] = "/var/log/nccl.%h.%p.log"
    chosen["NCCL_CTA_POLICY"] = "a-B_1.,:/+@%^z"
    chosen["NCCL_PROTO"] = "^LL128"
    chosen["OMPI_MCA_smsc"] = "^cma"
    return chosen


PROFILE = sealed(Profile(settings=every_setting(), pinned=PINNED))
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
    text = render("shell", Reference(path=Path("/x.env"), values=ODD, profile=None))
    (tmp_path / "x.sh").write_text(text)
    assert sourced(name, ". ./x.sh", tmp_path) == ODD


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


def test_kubectl_reads_it(env_file: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    words = ["kubectl", "create", "configmap", "x", f"--from-env-file={env_file}"]
    done = subprocess.run(
        [*words, "--dry-run=client", "-o", "json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["data"] == WANTED


class Engine(BaseHTTPRequestHandler):
    """As much of Docker's engine as the client needs to say what it would create."""

    created: list[dict[str, str]]

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("API-Version", "1.41")
        self.end_headers()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "/containers/create" in self.path:
            environ = json.loads(body)["Env"]
            type(self).created.append(dict(pair.split("=", 1) for pair in environ))
        self.send_response(500)
        self.end_headers()
        self.wfile.write(b'{"message": "enough"}')

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Engine]]:
    if shutil.which("docker") is None:
        pytest.skip("no docker client here")
    Engine.created = []
    server = HTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    yield Engine
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("odd", [False, True])
def test_the_docker_client_creates_what_the_snippet_says(
    engine: type[Engine], env_file: Path, odd: bool
) -> None:
    values = {**ODD, "SPT_NOENV": "1"} if odd else WANTED
    text = render("docker", Reference(path=env_file, values=values, profile=None))
    command = text[text.index("docker run") :].partition("\n#")[0].replace("IMAGE", "image")
    subprocess.run(["sh", "-c", command], capture_output=True, timeout=60, check=False)
    assert engine.created == [values]


@pytest.mark.parametrize("odd", [False, True])
def test_systemd_accepts_the_drop_in(env_file: Path, tmp_path: Path, odd: bool) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here: apt-get install systemd")
    values = {**ODD, "SPT_NOENV": "1"} if odd else WANTED
    text = render("systemd", Reference(path=env_file, values=values, profile=None))
    (tmp_path / "server.service.d").mkdir()
    (tmp_path / "server.service.d/50-collbench.conf").write_text(text)
    (tmp_path / "server.service").write_text("[Service]\nExecStart=/bin/true\n")
    done = subprocess.run(
        ["systemd-analyze", "verify", "./server.service"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
