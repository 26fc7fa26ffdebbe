"""A worker that hangs, dies, is killed or answers wrongly is a typed outcome; the pool goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.dist

HERE = Path(__file__).parent / "faulty"
FAULTS = [
    "none",
    "refuse",
    "segv",
    "killed",
    "exit",
    "wrong",
    "hang",
    "hang_deaf",
    "hang_before_group",
    "none",
]


def torchrun(nproc: int, *arguments: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(nproc), *arguments),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        **kwargs,
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("faults") / "runs.json"
    done = torchrun(2, str(HERE / "drive.py"), str(out), *FAULTS)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(out.read_text())
    assert not psutil.pid_exists(found["pid"])
    runs: list[dict[str, Any]] = found["runs"]
    assert [run["fault"] for run in runs] == FAULTS
    return runs


def of(runs: list[dict[str, Any]], fault: str) -> dict[str, Any]:
    return next(run for run in runs if run["fault"] == fault)


def test_a_healthy_launch_is_ok_before_and_after_all_faults(runs: list[dict[str, Any]]) -> None:
    for run in (runs[0], runs[-1]):
        assert run["run"]["outcome"] == "ok", run["run"]["reason"]
        (case,) = run["run"]["cases"]
        assert len(case["times_us"]) == 2
        assert all(time > 0 for times in case["times_us"] for time in times)


@pytest.mark.parametrize(
    ("fault", "outcome", "reason"),
    [
        ("refuse", "refused", "no such algorithm"),
        ("segv", "died", "SIGSEGV"),
        ("killed", "died", "SIGKILL"),
        ("exit", "died", "exit code 7"),
        ("wrong", "wrong", ""),
        ("hang", "hung", "no answer within 4 s"),
        ("hang_deaf", "hung", "no answer within 4 s"),
        ("hang_before_group", "hung", "no answer within 4 s"),
    ],
)
def test_a_fault_is_told_by_its_type_and_its_rank(
    runs: list[dict[str, Any]], fault: str, outcome: str, reason: str
) -> None:
    run = of(runs, fault)["run"]
    assert run["outcome"] == outcome, run["reason"]
    assert reason in run["reason"]
    if outcome in ("died", "refused"):
        assert run["failed_rank"] == 1


def test_wrong_data_is_counted_on_the_rank_that_has_it(runs: list[dict[str, Any]]) -> None:
    (case,) = of(runs, "wrong")["run"]["cases"]
    assert case["wrong"][0] == 0
    assert case["wrong"][1] > 0


def test_a_death_ends_the_launch_long_before_its_deadline(runs: list[dict[str, Any]]) -> None:
    for fault in ("segv", "killed", "exit", "refuse"):
        assert of(runs, fault)["wall_s"] < 3.0, fault


def test_a_hang_ends_within_two_seconds_of_its_deadline(runs: list[dict[str, Any]]) -> None:
    for fault in ("hang", "hang_deaf", "hang_before_group"):
        assert 4.0 <= of(runs, fault)["wall_s"] < 6.0, fault
