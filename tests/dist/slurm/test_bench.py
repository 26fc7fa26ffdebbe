"""The shipped job scripts on a real Slurm: one node, two nodes by torchrun and by srun alone."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.dist

SCRIPTS = Path(__file__).parents[3] / "slurm"
SMALL = ("--sizes", "4K", "--collective", "all_reduce", "--mode", "eager", "--launches", "1")


def sbatch(
    slurm: Any,
    script: str,
    *words: str,
    options: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
) -> tuple[str, str]:
    """Run a shipped script to its end; return the state of the job and its log."""
    folder = slurm.folder / "work"
    folder.mkdir(exist_ok=True)
    command = ("sbatch", "--parsable", *options, str(SCRIPTS / script), *words)
    done = slurm.run(*command, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    state = slurm.wait(job)
    return state, (folder / f"collbench-{job}.log").read_text()


def record_of(folder: Path) -> dict[str, Any]:
    return json.loads(next(folder.rglob("*.json")).read_text())


def test_one_node_benches_behind_the_front_door(slurm: Any, tmp_path: Path) -> None:
    state, log = sbatch(
        slurm, "one-node.sbatch", "bench", "--backend", "gloo", *SMALL, "--out", str(tmp_path)
    )
    assert state == "COMPLETED", log
    record = record_of(tmp_path)
    assert [run["outcome"] for run in record["launches"]] == ["ok"]
    assert record["nranks"] == 2


@pytest.mark.parametrize("script", ["nodes-torchrun.sbatch", "nodes-srun.sbatch"])
def test_two_nodes_bench_as_one_world(slurm: Any, tmp_path: Path, script: str) -> None:
    words = ("bench", "--backend", "gloo", *SMALL, "--out", str(tmp_path))
    options = ("--export=ALL,RANKS_PER_NODE=1",)
    state, log = sbatch(slurm, script, *words, options=options)
    assert state == "COMPLETED", log
    record = record_of(tmp_path)
    assert [run["outcome"] for run in record["launches"]] == ["ok"], log
    assert record["nranks"] == 2


def test_trials_of_mpi_span_the_nodes_of_the_job(slurm: Any, tmp_path: Path) -> None:
    # rank 0 of the step starts mpirun for each trial; its daemons come by srun, inside the step
    own = {"COLLBENCH_MPIRUN_ARGS": "--bind-to none", "OMPI_MCA_mpi_yield_when_idle": "1"}
    words = ("bench", "--backend", "mpi", *SMALL, "--out", str(tmp_path))
    state, log = sbatch(slurm, "nodes-srun.sbatch", *words, env=own)
    assert state == "COMPLETED", log
    record = record_of(tmp_path)
    assert [run["outcome"] for run in record["launches"]] == ["ok"], log
    assert record["nranks"] == 2
    daemons = (slurm.folder / "slurmd.n2.log").read_text()
    assert ".1 request from" in daemons, "a step of mpirun's daemons ran on the second node"


def test_the_job_ends_with_the_exit_code_of_the_command(slurm: Any, tmp_path: Path) -> None:
    state, log = sbatch(slurm, "one-node.sbatch", "bench", "--collective", "all_redcue")
    assert state == "FAILED"
    assert "all_redcue" in log
    assert "Traceback" not in log


def test_a_profile_is_sourced_inside_the_script(slurm: Any, tmp_path: Path) -> None:
    profile = tmp_path / "profile.env"
    profile.write_text("NCCL_MIN_NCHANNELS=16\nNCCL_PROTO=LL\n")
    job = slurm.check(
        "sbatch",
        "--parsable",
        "--nodes=2",
        f"--output={tmp_path}/out",
        str(SCRIPTS / "with-profile.sbatch"),
        str(profile),
        shutil.which("env") or "env",
    ).strip()
    assert slurm.wait(job) == "COMPLETED"
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines.count("NCCL_MIN_NCHANNELS=16") == 2
    assert lines.count("NCCL_PROTO=LL") == 2
