"""A real PostgreSQL: two sweeps share a study and one is killed; many clients lose no trial."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
from optuna.trial import TrialState

from benchmarks.storage_load import close, find_postgres, load, postgres
from collbench.search import shared
from collbench.search.backings import open_shared
from collbench.search.shared import Node, Peers

pytestmark = [pytest.mark.dist, pytest.mark.slow]

SPEC = Path(__file__).parents[2] / "data" / "sweeps" / "shared.toml"


@pytest.fixture
def database() -> Iterator[str]:
    if sys.platform != "linux":
        pytest.skip("needs Linux")
    if find_postgres() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        pytest.fail("not installed: PostgreSQL; apt-get install postgresql")
    if find_postgres() is None:
        pytest.skip("not installed: PostgreSQL")
    with postgres() as url:
        yield url


def sweep(folder: Path, node: str, url: str) -> subprocess.Popen[str]:
    """Start a sweep as it would run on a node of a cluster."""
    (folder / node).mkdir()
    own = {
        "SLURMD_NODENAME": node,  # the name of a node in a job
        "TMPDIR": str(folder / node),
        "OMP_NUM_THREADS": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",  # both "nodes" share the cores of one machine
    }
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "collbench", "sweep", str(SPEC), "--nproc-per-node", "2"),
            *("--storage", url, "--out", str(folder / node), "--json-file"),
            str(folder / f"{node}.json"),
        ],
        env={**os.environ, **own},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a sweep with all it started, as a node that loses its power does."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in family:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    process.communicate()


def trials(storage: Any) -> list[Any]:
    try:
        study = optuna.load_study(study_name="shared", storage=storage)
    except KeyError:
        return []
    return list(study.get_trials(deepcopy=False))


def who_scored(found: Iterable[Any]) -> set[str]:
    """Return the nodes that have told a score: a node's first complete trial may carry none."""
    told = (t for t in found if t.state == TrialState.COMPLETE and "log" in t.user_attrs)
    return {t.user_attrs["node"] for t in told}


def test_two_sweeps_share_a_study_and_the_one_that_lives_ends_it(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying, living = sweep(tmp_path, "n1", database), sweep(tmp_path, "n2", database)
    deadline = time.monotonic() + 180
    # whoever looks later takes over what a dead node held
    monkeypatch.setattr(shared, "BEAT_S", 1.0)
    monkeypatch.setattr(shared, "STALE_S", 1.0)
    storage = open_shared(database)
    while True:
        found = trials(storage)
        done = who_scored(found)
        busy = [
            t.number
            for t in found
            if t.state == TrialState.RUNNING and t.user_attrs.get("node") == "n1"
        ]
        if {"n1", "n2"} <= done and busy:
            break
        assert time.monotonic() < deadline, [(t.state, t.user_attrs) for t in found]
        assert living.poll() is None, living.communicate()[1]
        assert dying.poll() is None, dying.communicate()[1]
        time.sleep(0.05)
    kill(dying)
    _, err = living.communicate(timeout=300)
    assert living.returncode == 0, err
    plain = json.loads((tmp_path / "n2.json").read_text())
    assert plain["verdict"] in ("profile", "keep_default")
    study = optuna.load_study(study_name="shared", storage=storage)
    mine = study.user_attrs["class"]
    Peers(study, Node(name="n3", machine=mine)).retry_stale()
    after = {t.number: t for t in trials(storage)}
    close(storage)
    assert not [t.number for t in after.values() if t.state == TrialState.RUNNING]
    for number in busy:
        assert after[number].state in (TrialState.FAIL, TrialState.COMPLETE)
        if after[number].state == TrialState.FAIL:
            retried = [t for t in after.values() if t.user_attrs.get("again") == number]
            assert len(retried) == 1
    assert who_scored(after.values()) == {"n1", "n2"}
    assert not (tmp_path / "n1.json").exists()


def test_clients_of_one_study_lose_and_double_no_trial(database: str) -> None:
    # the full size, 64 clients, is benchmarks/storage_load.py; its result is under results/
    found = load(database, clients=12, trials=48, kill=2, pause_s=0.2, end_s=150)
    assert (found["lost"], found["doubled"], found["left_unfinished"]) == (0, 0, 0)
    assert found["killed"] == 2
    assert found["candidates"] >= 40
    assert found["retried"] >= 1
    assert found["failed_clients"] == 0
