"""Which processes count as a server's workers when nobody names them."""

import pytest

from collbench.errors import CollbenchError
from collbench.live.processes import Process
from collbench.live.select import Selector

GPU_WORKER, RANK = 103, 203


def tree(*rows: tuple[int, int, str]) -> dict[int, Process]:
    return {
        pid: Process(pid, parent, 0, 0, words.split()[0][:15], tuple(words.split()))
        for pid, parent, words in rows
    }


def found(table: dict[int, Process]) -> set[int]:
    return {p.pid for p in Selector(table, {GPU_WORKER}).all()}


@pytest.mark.parametrize(
    "top",
    [
        "/venv/bin/python /venv/bin/collbench sweep decode",
        "/venv/bin/python -m collbench bench --sizes 8K",
        "/venv/bin/python -m torch.distributed.run -m collbench.sweep decode",
        "mpirun -n 2 python -m collbench.worker --job /dev/shm/job.json",
    ],
)
def test_our_own_launches_are_no_server(top: str) -> None:
    table = tree(
        (100, 1, top),
        (GPU_WORKER, 100, "python -m something"),
        (201, 100, "mpirun -n 2 python -m any.worker"),
        (RANK, 201, "python -m any.worker"),
    )
    assert not found(table)


@pytest.mark.parametrize(
    "top",
    [
        "/venv/bin/vllm serve m --served-model-name collbench",
        "python -m sglang.launch_server --model /models/collbench/sweep",
        "mpirun -n 2 python -m any.collbench_worker",
    ],
)
def test_a_server_that_only_speaks_of_us_is_one(top: str) -> None:
    table = tree(
        (100, 1, top),
        (GPU_WORKER, 100, "VLLM::Worker_TP0"),
        (201, 1, "mpirun -n 2 python -m any.worker"),
        (RANK, 201, "python -m any.worker"),
    )
    assert found(table) == {GPU_WORKER, RANK}


@pytest.mark.parametrize("pattern", ["", " ", "("])
def test_a_pattern_that_says_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(CollbenchError, match="--match") as raised:
        Selector(tree((100, 1, "vllm serve m"))).by_match(pattern)
    assert raised.value.code == 2
