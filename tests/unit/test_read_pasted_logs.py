"""NCCL logs and tables as people paste them: other wrappings, and evidence beside them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from collbench.readers.nccl_log import NcclLog
from tests.unit.reading import codes, inspect

PROFILE = {"NCCL_PROTO": "LL"}


def log(value: str = "LL", via: str = "P2P/CUMEM", ranks: int = 2) -> str:
    lines = []
    for rank in range(ranks):
        who = f"node-a:{100 + rank}:{150 + rank} [{rank}] NCCL INFO"
        init = f"ncclCommInitRank comm 0x1 rank {rank} nranks {ranks} cudaDev {rank} commId 0xa"
        lines += [
            f"{who} NCCL version 2.27.7+cuda12.9",
            f"{who} {init} - Init START",
            f"{who} NCCL_PROTO set by environment to {value}",
            f"{who} Channel 00/0 : {rank}[{rank}] -> {(rank + 1) % ranks}[0] via {via}",
            f"{who} {init} - Init COMPLETE",
        ]
    return "\n".join(lines) + "\n"


def test_the_json_file_of_docker_is_read_as_the_log_in_it() -> None:
    wrapped = "".join(
        json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-01-01T00:00:00Z"}) + "\n"
        for line in log().splitlines()
    ).replace('{"log": ', '{"log":')
    assert inspect(wrapped).facts == inspect(log()).facts


@pytest.mark.parametrize("via", ["NET/AWS Libfabric/1/GDRDMA", "NET/IB/0/GDRDMA", "NET/Socket/0"])
def test_networks_by_the_names_of_their_plugins(via: str) -> None:
    assert inspect(log(via=via)).facts["transports"] == {via: 2}


def test_a_log_that_names_no_rank_decides_nothing() -> None:
    text = "node-a:100:150 [0] NCCL INFO NCCL_PROTO set by environment to LL\n"
    assert codes(inspect(text, profile=PROFILE)) == ["env.unknown"]


def test_a_carriage_return_in_a_value_is_told_from_one_of_the_whole_log() -> None:
    found = inspect(log(value="LL\r"), profile=PROFILE)
    assert found.facts["env"]["0"] == {"NCCL_PROTO": "LL\r"}
    assert set(codes(found)) == {"env.crlf", "env.value_differs"}
    assert codes(inspect(log().replace("\n", "\r\n"), profile=PROFILE)) == []


def test_a_denied_matrix_beside_a_log_is_no_peer_access() -> None:
    matrix = "==> p2p.txt <==\n \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n"
    text = f"==> server.log <==\n{log(via='SHM/direct')}\n{matrix}"
    assert codes(inspect(text)) == ["p2p.disabled", "transport.shm"]


@pytest.mark.parametrize(
    ("said", "overrides"),
    [
        ("server_args=ServerArgs(enable_deterministic_inference=True)", True),
        ("server_args={'enable_deterministic_inference': True}", True),
        ("python -m sglang.launch_server --enable-deterministic-inference --tp 2", True),
        ("server_args=ServerArgs(enable_deterministic_inference=False)", False),
        ("python -m sglang.launch_server --enable-deterministic-inference-x", False),
    ],
)
def test_an_option_of_the_server_however_it_is_said(said: str, overrides: bool) -> None:
    text = (
        said
        + "\n"
        + log().replace("NCCL_PROTO set", "NCCL_ALGO set").replace("to LL", "to allreduce:tree")
    )
    found = codes(inspect(text, profile={"NCCL_ALGO": "Ring"}))
    assert ("env.overridden_by_server" in found) is overrides


TABLE = """# nThread 1 nGpus 2 minBytes 8192 maxBytes 16384 step: 2(factor) validation: 1 graph: 7
# Using devices
#  Rank  0 Group  0 Pid    930 on     node-b device  0 [0000:4b:00] NVIDIA L40S
#  Rank  1 Group  0 Pid    930 on     node-b device  1 [0000:b1:00] NVIDIA L40S
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        8192          2048     float     sum      -1    14.36    1.14    1.14      0    14.37    1.14    1.14      0
       16384          4096     float     sum      -1    14.99    2.19     inf      0    15.15    2.16     nan      2
# Out of bounds values : 1 FAILED
"""  # noqa: E501


@pytest.mark.parametrize(
    "front",
    [
        lambda n: f"2026-02-11T07:41:03.{n:09d}Z ",
        lambda n: "[1,0]<stdout>:",
        lambda n: "0: ",
        lambda n: " 0: ",
        lambda n: "bench-1  | ",
        lambda n: f"Mar 03 10:11:{n:02d} node-a bench[4411]: ",
        lambda n: "> ",
        lambda n: "    ",
        lambda n: "\t",
    ],
)
def test_what_stands_in_front_of_every_line_of_a_table_does_not_matter(
    front: Callable[[int], str],
) -> None:
    text = "".join(f"{front(n)}{line}\n" for n, line in enumerate(TABLE.splitlines()))
    assert inspect(text).facts == inspect(TABLE).facts


def test_numbers_that_are_none_are_null() -> None:
    row = inspect(TABLE).facts["rows"][1]
    assert row[-6:] == [None, 0, 15.15, 2.16, None, 2]


def steps(after: float, **known: Any) -> str:
    runs: dict[str, dict[str, Any]] = {"before": {"batch": 8}, "after": {"batch": 8}}
    for label, ms in (("before", 20.0), ("after", after)):
        samples = [round(ms + 0.01 * (i % 5), 3) for i in range(10)]
        runs[label] |= {
            "label": label,
            "verify_ms": samples,
            "allreduce": {"count": 9, "idle_us": 9},
        }
    runs["after"]["batch"] = known.pop("batch", 8)
    runs["after"]["cpu_numa"] = known.pop("cpu_numa", [0, 1])
    return json.dumps({"gpu_numa": [0, 1], **known, "runs": list(runs.values())})


def test_a_batch_beyond_the_largest_captured_one_is_not_captured() -> None:
    assert codes(inspect(steps(30, batch=20, largest_graph_batch=16))) == ["verify.not_captured"]
    assert codes(inspect(steps(30, batch=16, largest_graph_batch=16))) == ["verify.beyond_comm"]


def test_a_worker_on_the_wrong_node_is_said_whatever_the_step_does() -> None:
    wrong = "topo.numa_misbinding"
    assert codes(inspect(steps(30, cpu_numa=[1, 1]))) == ["verify.beyond_comm", wrong]
    assert codes(inspect(steps(20, cpu_numa=[1, 1]))) == [wrong, "verify.no_change"]


def test_lists_in_the_comments_of_a_csv() -> None:
    rows = "".join(f"{run},{ms}\n" for run, ms in [("before", 20.0)] * 5 + [("after", 30.0)] * 5)
    remarks = "# gpu_numa: [0, 1]\n# after: rank_wait_ms=[9.5, 0.1] cpu_numa=[0, 0] graph=true\n"
    found = inspect(f"{remarks}run,verify_ms\n{rows}")
    assert found.facts["late_rank"] == 1
    assert found.facts["misbound_ranks"]["after"] == [1]


def test_a_long_run_of_junk_in_front_of_a_message_does_not_hold_the_reader_up() -> None:
    start = next(line for line in log().splitlines() if line.endswith("- Init START"))
    # Quadratic time would be minutes here.
    raw = start.replace("ncclCommInitRank", "A" * (1 << 18) + "ncclCommInitRank").encode()
    NcclLog().feed(1, raw)
    found = inspect(log() + raw.decode() + "\n")
    assert found.facts == inspect(log()).facts


def test_a_faster_step_that_accepts_fewer_tokens_is_told_as_both() -> None:
    fast = json.loads(steps(15))
    fast["runs"][0]["accept_len"], fast["runs"][1]["accept_len"] = [3.0, 3.1] * 5, [1.0, 1.1] * 5
    assert codes(inspect(json.dumps(fast))) == ["verify.acceptance_not_comm", "verify.faster"]
