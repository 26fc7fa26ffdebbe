"""The ranks of a launch meet without torchrun: on one address, all of them, each once."""

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.dist

RANK = textwrap.dedent(
    """
    import json, os, sys
    import psutil
    from collbench.errors import CollbenchError
    from collbench.ranks import detect, open_store
    try:
        launch = detect()
        store = open_store(launch, meet_s=float(sys.argv[1]))
    except CollbenchError as error:
        print(json.dumps({"error": error.what, "code": error.code}))
        sys.exit(1)
    listening = [
        list(c.laddr) for c in psutil.Process().net_connections("tcp") if c.status == "LISTEN"
    ]
    store.set(f"told/{launch.rank}", "x")
    told = [store.get(f"told/{rank}", 10.0) for rank in range(launch.world_size)]
    print(json.dumps({"rank": launch.rank, "hosts": store.hosts, "told": told,
                      "listening": listening, "port": store.port}))
    store.leave()
    """
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(rank: int, world: int, port: int, meet_s: float = 60.0) -> subprocess.Popen[str]:
    own = {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return subprocess.Popen(
        [sys.executable, "-c", RANK, str(meet_s)],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def end(process: subprocess.Popen[str]) -> dict[str, object]:
    out, err = process.communicate(timeout=120)
    assert out, err
    return dict(json.loads(out))


def test_ranks_meet_at_an_address_set_by_hand_and_rank_0_listens_there_only() -> None:
    port = free_port()
    found = [end(process) for process in [start(rank, 2, port) for rank in range(2)]]
    for one in found:
        assert one["told"] == ["x", "x"]
        assert one["hosts"] == [socket.gethostname()] * 2
    assert found[0]["listening"] == [["127.0.0.1", port]]
    assert found[1]["listening"] == []


def test_a_rank_that_does_not_come_is_named_to_all_others() -> None:
    port = free_port()
    found = [end(process) for process in [start(rank, 3, port, 8.0) for rank in (0, 2)]]
    for one in found:
        assert one["code"] == 1
        assert "of 3 ranks, missing after 8 s: 1; there:" in str(one["error"])


def test_a_rank_that_comes_twice_is_refused() -> None:
    port = free_port()
    # rank 2 never comes, so that the others still wait when the second rank 1 arrives
    running = [start(rank, 3, port, 15.0) for rank in (0, 1, 1)]
    errors = [str(end(process)["error"]) for process in running]
    assert sum("two processes say that they are rank 1" in error for error in errors[1:]) == 1
