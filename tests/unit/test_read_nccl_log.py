"""NCCL logs of other versions, wrappings and shapes than the cases have."""
# ruff: noqa: E501  (log lines stay in one piece)

import pytest

from collbench.diagnose.value_rules import forces_ll128
from collbench.readers.nccl_values import as_number
from tests.unit.reading import codes, inspect


def start(rank: int, nranks: int = 2, *, host: str = "node-a", pid: int | None = None,
          dev: int | None = None, comm: str = "0xabc", end: str = "START", tid: int = 0) -> str:  # fmt: skip
    pid = 100 + rank if pid is None else pid
    dev = rank if dev is None else dev
    return (
        f"{host}:{pid}:{tid or pid} [{dev}] NCCL INFO ncclCommInitRank comm 0x1{rank} rank {rank} "
        f"nranks {nranks} cudaDev {dev} nvmlDev {dev} busId {rank}000 commId {comm} - Init {end}\n"
    )


def said(rank: int, text: str, *, host: str = "node-a", pid: int | None = None,
         dev: int | None = None) -> str:  # fmt: skip
    pid = 100 + rank if pid is None else pid
    return f"{host}:{pid}:{pid} [{rank if dev is None else dev}] NCCL INFO {text}\n"


VERSION = "node-a:100:100 [0] NCCL INFO NCCL version 2.28.9+cuda12.9\n"
LL = "NCCL_PROTO set by environment to LL"


def test_version_26_dialect_with_complete_lines_only() -> None:
    text = (
        "NCCL version 2.6.4+cuda10.2\n"
        "host1:55:88 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 0.\n"
        "host1:55:88 [0] NCCL INFO Ring 00 : 0[1a000] -> 1[1b000] via P2P/IPC\n"
        "host1:56:89 [1] NCCL INFO Channel 00 : 1[1b000] -> 0[1a000] via direct shared memory\n"
        "host1:55:88 [0] NCCL INFO comm 0x7f01 rank 0 nranks 2 cudaDev 0 busId 1a000 - Init COMPLETE\n"
        "host1:56:89 [1] NCCL INFO comm 0x7f02 rank 1 nranks 2 cudaDev 1 busId 1b000 - Init COMPLETE\n"
    )
    facts = inspect(text).facts
    assert facts["nccl_version"] == "2.6.4"
    assert facts["ranks_started"] == facts["ranks_complete"] == [0, 1]
    assert facts["env"] == {"0": {"NCCL_P2P_DISABLE": "0"}, "1": {}}
    assert facts["transports"] == {"P2P/IPC": 1, "direct shared memory": 1}
    assert codes(inspect(text)) == ["transport.shm"]


@pytest.mark.parametrize(
    "wrap",
    [
        "{}",
        "(RayWorkerWrapper pid=3012, ip=192.0.2.31) {}",
        "\x1b[36m(RayWorkerWrapper pid=3012)\x1b[0m {}",
        "(Worker_TP0 pid=402) {}",
        "2026-02-11T07:41:03.200951858Z {}",
        "2026-02-11T07:41:03.2Z stdout F {}",
        "Mar 02 08:15:41 node-a sglang[123]: {}",
        "[1,0]<stdout>:{}",
        "0: {}",
        "0:{}",
        "engine-1  | {}",
        "[2026-04-02 11:05:19 TP0] {}",
    ],
)
def test_wrapping_does_not_change_what_is_read(wrap: str) -> None:
    plain = VERSION + start(0) + start(1) + said(0, LL) + said(1, LL)
    text = "".join(wrap.format(line) + "\n" for line in plain.splitlines())
    found = inspect(text, profile={"NCCL_PROTO": "LL"})
    assert found.facts["env"] == {"0": {"NCCL_PROTO": "LL"}, "1": {"NCCL_PROTO": "LL"}}
    assert codes(found) == []


def test_carriage_returns_are_no_part_of_values() -> None:
    text = (VERSION + start(0) + start(1) + said(0, LL) + said(1, LL)).replace("\n", "\r\n")
    assert inspect(text).facts["env"]["0"] == {"NCCL_PROTO": "LL"}


def test_sixteen_ranks_on_two_hosts_with_equal_pids_are_told_apart() -> None:
    text = VERSION
    for rank in range(16):
        host = f"node-{'ab'[rank // 8]}"
        text += start(rank, 16, host=host, pid=1, dev=rank % 8)
    for rank in range(16):
        if rank != 11:
            text += said(rank, LL, host=f"node-{'ab'[rank // 8]}", pid=1, dev=rank % 8)
    found = inspect(text, profile={"NCCL_PROTO": "LL"})
    assert found.facts["nranks"] == 16
    assert found.facts["env"]["11"] == {}
    assert found.facts["env"]["3"] == {"NCCL_PROTO": "LL"}
    assert codes(found) == ["env.partial_ranks"]


def test_socket_between_hosts_is_no_finding_and_within_one_is() -> None:
    link = "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"
    across = VERSION + start(0) + start(1, host="node-b", dev=0) + said(0, link)
    assert codes(inspect(across)) == []
    assert codes(inspect(VERSION + start(0) + start(1) + said(0, link))) == ["transport.net_socket"]


def test_subgroups_do_not_rename_ranks() -> None:
    text = VERSION + "".join(start(r, 4) for r in range(4))
    text += start(0, 2, pid=102, dev=2, comm="0xdef") + start(1, 2, pid=103, dev=3, comm="0xdef")
    text += said(2, LL) + said(3, LL)
    found = inspect(text, profile={"NCCL_PROTO": "LL"})
    assert found.facts["nranks"] == 4
    assert found.facts["env"] == {
        "0": {},
        "1": {},
        "2": {"NCCL_PROTO": "LL"},
        "3": {"NCCL_PROTO": "LL"},
    }
    assert codes(found) == ["env.partial_ranks"]


def test_no_rank_has_the_profile() -> None:
    found = inspect(VERSION + start(0) + start(1), profile={"NCCL_PROTO": "LL", "SPT_NOENV": "1"})
    assert codes(found) == ["env.profile_absent"]


def test_a_rank_without_lines_is_unknown_not_lacking() -> None:
    found = inspect(VERSION + start(0) + said(0, LL), profile={"NCCL_PROTO": "LL"})
    assert found.facts["ranks_started"] == [0]
    assert codes(found) == ["env.unknown"]


def test_without_a_profile_nothing_is_missing() -> None:
    assert codes(inspect(VERSION + start(0) + start(1))) == []


def test_markers_are_not_looked_for_in_a_log() -> None:
    found = inspect(VERSION + start(0) + start(1), profile={"COLLBENCH_PROFILE": "abc"})
    assert codes(found) == []


def test_other_value_in_one_rank_differs() -> None:
    text = (
        VERSION
        + start(0)
        + start(1)
        + said(0, LL)
        + said(1, "NCCL_PROTO set by environment to Simple")
    )
    found = inspect(text, profile={"NCCL_PROTO": "LL"})
    assert found.facts["differs"] == ["NCCL_PROTO"]
    assert codes(found) == ["env.value_differs"]


@pytest.mark.parametrize(("want", "printed", "live"), [("0x10", "16", True), ("4M", "4", False),
                                                       ("8", "8", True), ("8", "4", False)])  # fmt: skip
def test_numbers_are_compared_by_what_nccl_makes_of_them(
    want: str, printed: str, live: bool
) -> None:
    line = f"NCCL_BUFFSIZE set by environment to {printed}."
    text = VERSION + start(0, 1) + said(0, line)
    found = codes(inspect(text, profile={"NCCL_BUFFSIZE": want}))
    assert ("env.value_differs" in found) != live
    assert ("nccl.invalid_value" in found) == (want == "4M")


def test_two_messages_in_one_line_leave_the_last_whole_one() -> None:
    torn = "node-a:100:100 [0] NCCL INFO NCCL_PROTO setnode-a:101:101 [1] NCCL INFO " + LL + "\n"
    found = inspect(VERSION + start(0) + start(1) + torn, profile={"NCCL_PROTO": "LL"})
    assert found.facts["env"]["1"] == {"NCCL_PROTO": "LL"}
    assert found.facts["env"]["0"] == {}


def test_a_value_cut_by_the_end_of_the_file_is_not_used() -> None:
    text = (
        VERSION + start(0) + start(1) + said(0, LL) + said(1, "NCCL_PROTO set by environment to L")
    )
    found = inspect(text.rstrip("\n"), profile={"NCCL_PROTO": "LL"})
    assert found.facts["env"]["1"] == {}
    assert codes(found) == ["env.unknown"]


def test_one_process_with_two_ranks_prints_once_for_both() -> None:
    text = VERSION + start(0, pid=9, dev=0).replace("InitRank", "InitAll")
    text += start(1, pid=9, dev=1).replace("InitRank", "InitAll")
    text += said(0, "NCCL_MIN_NCHANNELS set by environment to 8.", pid=9)
    assert codes(inspect(text, profile={"NCCL_MIN_NCHANNELS": "8"})) == []


@pytest.mark.parametrize(
    ("line", "choice"),
    [
        ("262144 Bytes -> Algo 1 proto 0 time 54.7", [None, 262144, "ring", "ll"]),
        ("AllReduce: 4096 Bytes -> Algo 0 proto 2 time 9.5", ["AllReduce", 4096, "tree", "simple"]),
        ("AllReduce: 8 Bytes -> Algo NVLS_TREE proto LL128 channel{Lo..Hi}={0..1}",
         ["AllReduce", 8, "nvls_tree", "ll128"]),
        ("AllGather: 8 Bytes -> Algo PAT proto SIMPLE channel{Lo..Hi}={0..0}",
         ["AllGather", 8, "pat", "simple"]),
    ],
)  # fmt: skip
def test_choices_of_every_dialect(line: str, choice: list[object]) -> None:
    assert inspect(VERSION + said(0, line) * 2).facts["choices"] == [choice]


@pytest.mark.parametrize(
    "via",
    ["P2P/CUMEM/read", "P2P/IPC", "P2P/direct pointer", "P2P/indirect/2[2]", "SHM/direct",
     "SHM/CE/direct", "NET/IB/0/GDRDMA"],
)  # fmt: skip
def test_transports_keep_the_text_behind_via(via: str) -> None:
    text = VERSION + said(0, f"Channel 00/0 : 0[1a000] -> 1[1b000] via {via}")
    assert inspect(text).facts["transports"] == {via: 1}


def test_graph_of_the_fallback_alone_is_a_collapse() -> None:
    line = "Pattern 4, crossNic 0, nChannels 1, bw 0.100000/0.100000, type SYS/PIX, sameChannels 1"
    assert codes(inspect(VERSION + said(0, line))) == ["nccl.graph_search_collapse"]


def test_known_gpus_without_nvlink_and_forced_ll128() -> None:
    text = VERSION + start(0, 1) + said(0, "NCCL_PROTO set by environment to ^LL")
    assert codes(inspect(text)) == ["nccl.ll128_forced"]
    linked = said(
        0, "Pattern 4, crossNic 0, nChannels 8, bw 40.0/40.0, type NVL/PIX, sameChannels 1"
    )
    assert codes(inspect(text + linked)) == []


@pytest.mark.parametrize(("value", "forced"), [("LL128", True), ("LL,LL128,Simple", True),
                                               ("^LL128", False), ("^Simple", True),
                                               ("LL;allgather:LL128", True), ("Simple", False)])  # fmt: skip
def test_which_lists_force_ll128(value: str, forced: bool) -> None:
    assert forces_ll128(value) == forced


def test_version_of_the_stored_profile() -> None:
    assert codes(inspect(VERSION, stored={"nccl_version": "2.28.9"})) == []
    assert codes(inspect(VERSION, stored={"nccl_version": "2.27.7"})) == [
        "stack.nccl_version_changed"
    ]


def test_two_servers_of_different_versions_are_not_one_process() -> None:
    other = "node-a:300:300 [0] NCCL INFO NCCL version 2.27.7+cuda12.8\n"
    found = inspect(VERSION + other)
    assert found.facts["nccl_version"] is None
    assert found.facts["nccl_versions"] == ["2.27.7", "2.28.9"]
    assert codes(found) == []


def test_late_hang_is_not_a_grant_that_does_not_carry() -> None:
    body = VERSION + start(0) + start(1) + start(0, end="COMPLETE") + start(1, end="COMPLETE")
    body += said(0, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
    late = "[rank0]:[E1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType=ALLREDUCE, N=1) ran\n"
    assert codes(inspect(body + late.format(1))) == ["p2p.grant_hang"]
    assert codes(inspect(body + late.format(4711))) == []


def test_server_option_without_its_values_overrides_nothing() -> None:
    option = "[2026-03-11 18:20:02] server_args=ServerArgs(enable_deterministic_inference=True)\n"
    text = option + VERSION + start(0, 1) + said(0, "NCCL_ALGO set by environment to Ring")
    assert codes(inspect(text, profile={"NCCL_ALGO": "Ring"})) == []


def test_other_dispatch_groups_say_nothing_of_tensor_parallel() -> None:
    line = (
        "Using ['CUSTOM', 'PYNCCL'] all-reduce backends (in dispatch order) for group 'ep:0' out "
        "of potential backends: ['CUSTOM', 'PYNCCL'].\n"
    )
    assert "allreduce_backends" not in inspect(VERSION + line).facts


def test_strtoll_is_what_nccl_does() -> None:
    assert [as_number(text) for text in ("", "yes", " 12", "08", "0x1g")] == [0, 0, 12, 0, 1]


def test_a_transport_or_a_number_torn_before_the_line_end_is_not_used() -> None:
    text = VERSION + start(0) + start(1)
    text += said(0, "Channel 00/0 : 0[0] -> 1[1] via P2P/I") + said(
        0, "NCCL_BUFFSIZE set by environment to 4194304."
    )
    text += said(1, "NCCL_BUFFSIZE set by environment to 41")
    found = inspect(text, profile={"NCCL_BUFFSIZE": "4194304"})
    assert found.facts["transports"] == {}
    assert found.facts["env"]["1"] == {}
    assert codes(found) == ["env.unknown"]
