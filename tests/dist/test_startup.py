"""Light commands start quickly, and import nothing heavy."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.dist
HEAVY = {"torch", "optuna", "scipy", "pandas", "pydantic", "plotly", "mpi4py"}
LIGHT = ["", "run", "verify", "inspect", "status", "profile", "profile lint", "profile emit"]
OTHERS = ["bench", "sweep", "check", "compare", "diagnose", "workload", "report", "slurm", "fleet"]


def start(words: list[str]) -> tuple[subprocess.CompletedProcess[str], set[str], float]:
    """Run a command; return it, the top packages it imported, and its seconds of CPU."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "collbench", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done, names, spent


@pytest.mark.parametrize("command", LIGHT + OTHERS)
def test_help_imports_nothing_heavy_and_takes_a_quarter_of_a_second(command: str) -> None:
    done, names, _ = start([*command.split(), "--help"])
    assert done.returncode == 0, done.stderr[-500:]
    assert "Example" in done.stdout
    assert names & HEAVY == set()
    # The least of a few, of CPU time: other programs run on this machine.
    assert min(start([*command.split(), "--help"])[2] for _ in range(3)) < 0.25


def test_light_commands_import_nothing_heavy_while_they_work(tmp_path: Path) -> None:
    env_file = tmp_path / "x.env"
    env_file.write_text("NCCL_PROTO=LL\n")
    path = str(env_file)
    for words, code in (
        (["run", path, "--", "true"], 0),
        (["verify", path, "--match", "no such thing"], 1),
        (["status"], 0),
        (["profile", "lint", path], 0),
        (["profile", "emit", path, "--target", "compose"], 0),
        (["profile", "list"], 0),
        (["inspect", path], 0),
    ):
        done, names, _ = start(words)
        assert done.returncode == code, (words, done.stderr[-500:])
        assert names & HEAVY == set(), words
