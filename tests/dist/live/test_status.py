"""`status` tells servers apart, hides secrets, and is not broken by hostile text."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collbench.profiles import Profile
from collbench.profiles.current import activate
from collbench.profiles.store import publish
from tests.dist.live.conftest import CLEAN, PROFILE, TREE, Start, end

pytestmark = pytest.mark.dist
OWN = pytest.mark.parametrize("start", [sys.executable], indirect=True, ids=["own"])
TOKENS = {
    "HF_TOKEN": "hf_PLANTEDaaaaaaaaaaaaaaaa",
    "OPENAI_API_KEY": "sk-PLANTEDbbbbbbbbbbbbbbbb",
    "NCCL_SECRET_TOKEN": "PLANTEDcccc",
    "DB_URL": "postgresql://user:PLANTEDdddd@host/db",
}
SECRET_ARGUMENTS = (
    "vllm serve m --api-key PLANTEDeeee --hf-token=PLANTEDffff "
    "--header Authorization:PLANTEDgggg --storage mysql://u:PLANTEDhhhh@h/d "
    "--ssl-keyfile-password PLANTEDiiii --tp 2"
)


def collbench(*words: str, env: dict[str, str] | None = None, **more: Any) -> Any:
    environ = {**os.environ, **(env or {})}
    return subprocess.run(
        [sys.executable, "-m", "collbench", *words],
        capture_output=True, text=True, env=environ, **more,
    )  # fmt: skip


def servers(document: dict[str, Any], workers: list[int]) -> list[dict[str, Any]]:
    """The servers among which the given workers are; others run on this machine too."""
    return [s for s in document["servers"] if {w["pid"] for w in s["workers"]} & set(workers)]


@OWN
def test_two_servers_are_told_apart_and_each_has_its_own_state(
    start: Start, tmp_path: Path
) -> None:
    root = tmp_path / "results"
    path = publish(root, "m", Profile(settings=PROFILE))
    activate(path, at=tmp_path / "results")
    marked = {**PROFILE, "COLLBENCH_PROFILE": path.name}
    sglang = {
        "title": "sglang::scheduler_TP{rank}",
        "launcher_title": "python -m sglang.launch_server",
    }
    one = start(marked, workers=2, method="fork", **sglang)
    two = start({}, workers=1, title="VLLM::EngineCore", launcher_title="vllm serve other")
    env = {"COLLBENCH_RESULTS": str(root)}
    document = json.loads(collbench("status", "--json", env=env).stdout)
    (first,) = servers(document, one.workers)
    (second,) = servers(document, two.workers)
    assert first["pid"] == one.pid
    assert second["pid"] == two.pid
    assert first["profile"] == {"id": path.name, "state": "live"}
    assert second["profile"] == {"id": path.name, "state": "none"}
    assert [w["rank"] for w in first["workers"]] == [0, 1]
    assert document["current"] == path.name


@OWN
def test_a_worker_that_differs_is_shown(start: Start, tmp_path: Path) -> None:
    root = tmp_path / "results"
    path = publish(root, "m", Profile(settings=PROFILE))
    tree = start(
        {**PROFILE, "COLLBENCH_PROFILE": path.name},
        workers=2, method="fork", title="VLLM::Worker_TP{rank}", launcher_title="vllm serve m",
        only={"1": {"NCCL_PROTO": "Simple"}},
    )  # fmt: skip
    env = {"COLLBENCH_RESULTS": str(root)}
    document = json.loads(collbench("status", "--json", env=env).stdout)
    (server,) = servers(document, tree.workers)
    assert server["profile"]["state"] == "different"
    assert [w["verdict"] for w in server["workers"]] == ["live", "different"]


READY = "The server is fired up and ready to roll!"


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        (["Loading safetensors checkpoint shards: 50%"], "loading"),
        (["Capturing CUDA graphs: 10%", "INFO: Application startup complete."], "ready"),
        ([READY, "Decode batch. gen throughput (token/s): 94.2"], "benchmark"),
        ([READY, "torch.OutOfMemoryError: CUDA out of memory."], "error"),
        (["hello"], "none"),
    ],
)
def test_the_log_behind_a_servers_output_is_read(
    tmp_path: Path, lines: list[str], state: str
) -> None:
    log = tmp_path / "server.log"
    spec = json.dumps({"method": "fork", "title": "VLLM::EngineCore"})
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(TREE), spec], stdin=subprocess.PIPE, stdout=output, text=True,
            env={**CLEAN, "PYTHONPATH": ":".join(sys.path)},
        )  # fmt: skip
        try:
            while not log.read_text().startswith("ready"):
                assert process.poll() is None
            output.write("\n".join(lines) + "\n")
            output.flush()
            done = collbench("status", "--json")
        finally:
            process.stdout = log.open()  # for `end`, which closes it
            end(process)
    found = [s for s in json.loads(done.stdout)["servers"] if s["pid"] == process.pid]
    assert [s["log"]["state"] for s in found] == [state]


@OWN
@pytest.mark.parametrize("as_json", [True, False])
def test_planted_secrets_are_in_no_output(start: Start, tmp_path: Path, as_json: bool) -> None:
    log = tmp_path / "s.log"
    log.write_text("Initializing with hf_token hf_PLANTEDjjjjjjjjjjjj\n")
    tree = start(
        {**PROFILE, **TOKENS}, workers=2, method="fork", title="VLLM::Worker_TP{rank}",
        launcher_title=SECRET_ARGUMENTS,
    )  # fmt: skip
    root = tmp_path / "results"
    profile = publish(root, "m", Profile(settings=PROFILE))
    env_file = tmp_path / "mine.env"  # somebody keeps a token in it
    env_file.write_text("NCCL_PROTO=LL\nHF_TOKEN=hf_PLANTEDkkkkkkkkkk\nMY_API_KEY=PLANTEDllll\n")
    env = {**TOKENS, "COLLBENCH_RESULTS": str(root)}
    extra = ["--json"] if as_json else []
    outputs = []
    for words in (
        ["status", "--log", str(log), *extra],
        ["verify", str(profile), "--pid", str(tree.pid), "--log", str(log), *extra],
        ["verify", str(profile), "--match", "VLLM::Worker", *extra],
        ["profile", "show", str(profile), *extra],
        ["profile", "list", *extra],
        ["profile", "lint", str(profile), *extra],
        ["profile", "emit", str(profile), "--target", "shell"],
        ["run", str(profile), "--", "true"],
    ):
        done = collbench(*words, env=env)
        assert "Traceback" not in done.stderr
        outputs.append(done.stdout + done.stderr)
    assert "--tp 2" in outputs[0]
    for output in outputs:
        assert "PLANTED" not in output
    for file in root.rglob("*.*"):
        assert "PLANTED" not in (file.read_text() if file.is_file() else "")


@OWN
def test_hostile_titles_and_logs_cannot_colour_or_move_a_terminal(
    start: Start, tmp_path: Path
) -> None:
    hostile = "VLLM::Worker_TP{rank} \x1b[31mred\x1b]0;title\x07\x9b2J\r\nfake: LIVE\u202e\x08"
    value = "\udcff\x1b[31mLL\u202e"  # a byte that is no text, an escape, a reversal
    tree = start({"NCCL_PROTO": value}, title=hostile, launcher_title="vllm serve \x1b[2Jx")
    log = tmp_path / "s.log"
    log.write_bytes(b"Loading model \x1b[31m\xff\xfe\x9b2J \x1b]8;;http://x\x1b\\link\r evil\n")
    env_file = tmp_path / "p.env"
    env_file.write_text("NCCL_PROTO=LL\n")
    for words in (
        ["status", "--log", str(log)],
        ["verify", str(env_file), "--pid", str(tree.pid)],
        ["verify", str(env_file), "--pid", str(tree.pid), "--json"],
    ):
        done = collbench(*words)
        assert "Traceback" not in done.stderr
        output = done.stdout
        assert str(tree.workers[0]) in output
        assert not set(output) & {chr(c) for c in [*range(10), *range(11, 32), *range(127, 160)]}
        assert "\u202e" not in output
        assert "\nfake: LIVE" not in output


@OWN
def test_status_takes_less_than_a_second_of_cpu(start: Start) -> None:
    import resource

    start(workers=8, method="fork", title="VLLM::Worker_TP{rank}", launcher_title="vllm serve m")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert collbench("status").returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0
