"""Sweeps on a real Slurm: arrays, a node drained and its task moved, a job cancelled, resumed."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.dist.slurm.conftest import until

pytestmark = [pytest.mark.dist, pytest.mark.slow]

SPEC = Path(__file__).parents[2] / "data" / "sweeps" / "tiny.toml"
# two nodes share the cores of one machine: ranks that poll would wait for each other's slices
YIELD = {"OMPI_MCA_mpi_yield_when_idle": "1"}


def collbench(slurm: Any, *words: str, **more: Any) -> Any:
    return slurm.run(sys.executable, "-m", "collbench", *words, env=YIELD, timeout=400, **more)


def submit(slurm: Any, out: Path, *options: str) -> str:
    words = (str(SPEC), "--nproc-per-node", "2", "--out", str(out), *options)
    done = collbench(slurm, "slurm", "submit", *words, "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["job"])


def gather(slurm: Any, job: str, out: Path, *options: str) -> dict[str, Any]:
    done = collbench(slurm, "slurm", "gather", job, "--out", str(out), "--json", *options)
    assert done.stdout, done.stderr
    plain = dict(json.loads(done.stdout))
    assert plain["exit_code"] == done.returncode
    return plain


def reached(out: Path, job: str, word: str) -> Callable[[], bool]:
    """Return whether a task of a job has told of a phase."""

    def look() -> bool:
        return any(word in path.read_text() for path in (out / "slurm").glob(f"{job}*.log"))

    return look


def test_nothing_is_lost_when_a_node_is_drained_and_a_job_cancelled(
    slurm: Any, tmp_path: Path
) -> None:
    job = submit(slurm, tmp_path, "--array", "2")
    docs = tmp_path / "slurm" / job

    def both_search() -> bool:
        logs = [tmp_path / "slurm" / f"{job}.{task}.log" for task in (0, 1)]
        return all(log.exists() and "search 2/8" in log.read_text() for log in logs)

    until(both_search, 120, "both tasks search")
    nodes = {task: (docs / f"task-{task}.nodes").read_text().strip() for task in (0, 1)}
    assert sorted(nodes.values()) == ["n1", "n2"]
    moved = next(task for task, node in nodes.items() if node == "n1")
    slurm.check("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
    try:
        # what Slurm does with the job of a node that fails
        slurm.check("scontrol", "requeue", f"{job}_{moved}")
        plain = gather(slurm, job, tmp_path, "--follow")
    finally:
        slurm.check("scontrol", "update", "NodeName=n1", "State=RESUME")
    assert [task["state"] for task in plain["tasks"]] == ["done", "done"]
    assert [task["nodes"] for task in plain["tasks"]] == ["n2", "n2"]
    assert plain["exit_code"] == 0, "both tell of the same node, so they agree"
    cancel_and_resume(slurm, tmp_path)
    shown = collbench(slurm, "fleet", "show", str(tmp_path), "--json")
    assert shown.returncode in (0, 3), shown.stderr
    fleet = json.loads(shown.stdout)
    assert [m["machine"].split("/")[0] for m in fleet["machines"]] == ["n1", "n2"]
    assert len(fleet["classes"]) == 1


def cancel_and_resume(slurm: Any, out: Path) -> None:
    """Go on where the drained node stopped, be cancelled in the middle, and go on again."""
    job = submit(slurm, out, "--nodelist", "n1")
    until(reached(out, job, "search 2/8"), 180, "the task searches")
    slurm.check("scancel", job)
    assert slurm.wait(job) == "CANCELLED"
    plain = gather(slurm, job, out)
    assert plain["exit_code"] == 1
    assert [(task["state"], task["nodes"]) for task in plain["tasks"]] == [("CANCELLED", "n1")]
    again = submit(slurm, out, "--nodelist", "n1")
    one = gather(slurm, again, out, "--follow")["tasks"][0]
    assert (one["state"], one["nodes"]) == ("done", "n1")
    # 8 of the noise floor, and those of the search before the node was drained and after
    assert 12 <= one["trials_reused"] < one["trials"]
