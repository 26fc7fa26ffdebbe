"""Launches over two hosts: torchrun with Gloo, mpirun, and what a slow cable looks like."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.dist


def record_of(folder: Path) -> dict[str, Any]:
    return json.loads(next(folder.rglob("*.json")).read_text())


def bench(*words: str) -> tuple[str, ...]:
    return ("-m", "collbench.bench", *words)


def mpirun(hosts: Any, each: int, *words: str, cwd: Path, **more: Any) -> Any:
    """Start a module on both hosts with mpirun from h0."""
    start = ("mpirun", "--host", f"h0:{each},h1:{each}", "--bind-to", "none", "-n", str(2 * each))
    return hosts.run("h0", *start, sys.executable, *words, cwd=cwd, **more)


def test_torchrun_spans_two_hosts_with_gloo(hosts: Any, tmp_path: Path) -> None:
    hosts.link(None)
    running = [
        hosts.popen(
            f"h{i}",
            *("torchrun", "--nnodes=2", f"--node-rank={i}", "--nproc-per-node=1", "--rdzv-id=j1"),
            *("--rdzv-backend=c10d", "--rdzv-endpoint=h0:29500"),
            *bench("--backend", "gloo", "--sizes", "64K", "--collective", "all_reduce"),
            *("--mode", "eager", "--launches", "1", "--out", str(tmp_path / "out")),
            cwd=tmp_path,
        )
        for i in range(2)
    ]
    for process in running:
        code, out, err = hosts.end(process)
        assert code == 0, f"{out}\n{err}"
    run = record_of(tmp_path / "out")["launches"][0]
    assert run["outcome"] == "ok"
    assert sorted(rank["host"] for rank in run["ranks"]) == ["h0", "h1"]


def test_the_trials_of_mpirun_run_on_the_hosts_of_mpirun(hosts: Any, tmp_path: Path) -> None:
    hosts.link(None)
    done = mpirun(
        hosts,
        2,
        *bench("--backend", "mpi", "--sizes", "64K", "--collective", "all_reduce,all_gather"),
        *("--mode", "eager", "--launches", "2", "--out", str(tmp_path / "out")),
        cwd=tmp_path,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for run in record_of(tmp_path / "out")["launches"]:
        assert run["outcome"] == "ok"
        assert Counter(rank["host"] for rank in run["ranks"]) == {"h0": 2, "h1": 2}
        assert all(case["wrong"] == [0] * 4 for case in run["cases"])
    assert not list(tmp_path.glob(".collbench-*")), "the shared folder is removed"


def test_a_slow_cable_shows_in_the_matrix_of_pairs(hosts: Any, tmp_path: Path) -> None:
    found = {}
    for rate in ("1gbit", "250mbit"):
        hosts.link(rate)
        done = mpirun(
            hosts,
            2,
            *bench("--backend", "mpi", "--sizes", "4K", "--collective", "all_reduce", "--pairs"),
            *("--mode", "eager", "--launches", "1", "--out", str(tmp_path / rate)),
            cwd=tmp_path,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        pairs = record_of(tmp_path / rate)["launches"][0]["pairs"]
        assert len(pairs) == 12
        found[rate] = {(p["src"], p["dst"]): p["bandwidth_gbs"] for p in pairs}
    hosts.link(None)
    across = [(a, b) for a, b in found["1gbit"] if (a < 2) != (b < 2)]
    within = [pair for pair in found["1gbit"] if pair not in across]
    for pair in across:
        # at most what tbf lets through, in 10**9 bytes/s, and a little more for its burst; a busy
        # machine may stay below it
        assert found["1gbit"][pair] < 0.20, found
        assert found["250mbit"][pair] < 0.050, found
        assert found["1gbit"][pair] > 2 * found["250mbit"][pair], found
    assert min(found["250mbit"][pair] for pair in within) > 5 * max(
        found["250mbit"][pair] for pair in across
    )


def test_a_host_that_does_not_see_the_shared_folder_is_named(hosts: Any, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    hide = hosts.folder / "hide.h1"
    hide.write_text(str(shared))
    try:
        done = mpirun(
            hosts,
            1,
            *bench("--backend", "mpi", "--sizes", "4K", "--launches", "1"),
            cwd=tmp_path,
            env={"COLLBENCH_SHARED": str(shared)},
        )
    finally:
        hide.unlink()
    assert done.returncode == 1
    assert f"host h1 does not see the folder {shared}/" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(shared.iterdir())
