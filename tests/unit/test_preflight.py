"""Before anything is measured: the backend, enough GPUs, and nobody else on them."""

import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collbench import preflight
from collbench.errors import CollbenchError
from collbench.pool import gpus
from collbench.pool.gpus import GpuUse
from collbench.preflight import MachineLock, check_gpus, check_shm, choose_backend


def gpu(index: int, *pids: int, **fields: Any) -> GpuUse:
    known = {"name": "GPU A", "utilization_pct": 0, **fields}
    return GpuUse(index=index, uuid=f"GPU-{index}", pids=pids, **known)


@pytest.fixture
def with_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "find_mpirun", lambda: None)
    monkeypatch.setattr(preflight, "check_mpi4py", lambda: None)


@pytest.mark.usefixtures("with_mpi")
@pytest.mark.parametrize(
    ("wish", "seen", "backend"),
    [("auto", 2, "nccl"), ("auto", 0, "mpi"), ("mpi", 2, "mpi"), ("gloo", 0, "gloo")],
)
def test_auto_is_nccl_where_there_are_gpus_and_a_wish_is_followed(
    wish: str, seen: int, backend: str
) -> None:
    assert choose_backend(wish, 2, [gpu(i) for i in range(seen)]).backend == backend


@pytest.mark.usefixtures("with_mpi")
@pytest.mark.parametrize(
    ("wish", "nranks", "seen", "local", "words", "fix"),
    [
        ("nccl", 4, 2, None, "needs 4 GPUs; 2 visible", "--nproc-per-node 2"),
        ("nccl", 2, 0, None, "needs 2 GPUs; 0 visible", "CUDA_VISIBLE_DEVICES"),
        ("auto", 16, 4, 8, "8 ranks on this machine needs 8 GPUs; 4 visible", "--nproc-per-node 4"),
        ("mpi", 1, 0, None, "1 rank: a collective needs at least 2", "--nproc-per-node 2"),
        (
            "mpi",
            100_000,
            0,
            None,
            "100000 ranks on this machine: its 4 CPUs",
            "--nproc-per-node 16",
        ),
        ("gloo", 34, 0, 17, "17 ranks on this machine: its 4 CPUs", "--nproc-per-node 16"),
    ],
)
def test_too_few_of_something_is_named_with_the_next_step(
    wish: str,
    nranks: int,
    seen: int,
    local: int | None,
    words: str,
    fix: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    with pytest.raises(CollbenchError) as caught:
        choose_backend(wish, nranks, [gpu(i) for i in range(seen)], local_ranks=local)
    assert words in caught.value.what
    assert fix in caught.value.fix


def test_a_gpu_that_somebody_uses_refuses_and_force_is_a_warning() -> None:
    assert check_gpus([gpu(0), gpu(1)], force=False) == []
    with pytest.raises(CollbenchError, match="GPU 1 is used by process 4711, 4712") as caught:
        check_gpus([gpu(0), gpu(1, 4711, 4712)], force=False)
    assert "--force" in caught.value.fix
    (warning,) = check_gpus([gpu(0), gpu(1, 4711)], force=True)
    assert "GPU 1 is used by process 4711" in warning
    assert check_gpus([gpu(0), gpu(1)], force=True) == []


class SilentNvml:
    """A driver that hides processes, as in some containers."""

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        raise self.NVMLError

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=97)

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "GPU A"

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlShutdown(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 3


@pytest.mark.parametrize(
    ("wish", "seen"),
    [(None, [0, 1, 2]), ("2,0", [2, 0]), ("GPU-1", [1]), ("0,7,1", [0]), ("", []), ("GPU-", [])],
)
def test_the_gpus_used_are_those_that_cuda_will_show(
    monkeypatch: pytest.MonkeyPatch, wish: str | None, seen: list[int]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", SilentNvml())
    if wish is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", wish)
    assert [use.index for use in gpus.visible_gpus()] == seen


def test_a_driver_that_hides_processes_is_not_taken_for_a_free_gpu() -> None:
    use = gpus._use(SilentNvml(), 0)
    assert not use.pids_known
    (warning,) = check_gpus([use], force=False)
    assert warning == "GPU 0: the driver does not tell who uses it; it is busy 97 %"


@pytest.mark.parametrize(("blocks", "words"), [(1 << 10, "4 MiB"), (1 << 14, None)])
def test_small_shared_memory_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, blocks: int, words: str | None
) -> None:
    there: Any = SimpleNamespace(f_frsize=4096, f_blocks=blocks)
    monkeypatch.setattr(os, "statvfs", lambda _: there)
    found = check_shm()
    assert (words is None and found == []) or words in found[0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_one_measurement_at_a_time_on_any_gpu_of_a_set(folder: Path) -> None:
    first = MachineLock([gpu(0), gpu(1)])
    other = MachineLock([gpu(2)])
    with pytest.raises(CollbenchError, match=rf"process {os.getpid()}\) measures on GPU-1"):
        MachineLock([gpu(1), gpu(3)])
    first.release()
    MachineLock([gpu(0), gpu(1)]).release()
    other.release()


def test_what_was_taken_before_a_refusal_is_free_again(folder: Path) -> None:
    held = MachineLock([gpu(1)])
    with pytest.raises(CollbenchError, match="GPU-1"):
        MachineLock([gpu(0), gpu(1)])
    MachineLock([gpu(0)]).release()
    held.release()


def test_cpus_are_one_set_and_a_planted_link_is_not_followed(folder: Path) -> None:
    lock = MachineLock([])
    with pytest.raises(CollbenchError, match="measures on cpus"):
        MachineLock([])
    lock.release()
    (folder / "collbench-cpus.lock").unlink()
    (folder / "victim").write_text("mine")
    (folder / "collbench-cpus.lock").symlink_to(folder / "victim")
    with pytest.raises(CollbenchError, match="lock cannot be opened"):
        MachineLock([])
    assert (folder / "victim").read_text() == "mine"


def test_a_backend_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(CollbenchError, match="--backend foo") as refused:
        choose_backend("foo", 2, [])
    assert "gloo" in str(refused.value)
    assert choose_backend("package.module:factory", 2, []).backend == "package.module:factory"
