"""Inputs that differ in kind from the usual ones: one-way grants, full disks, notes in a CSV."""

import json

import pytest

from tests.unit.reading import codes, inspect

START = "".join(
    f"node-a:{10 + rank}:{10 + rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} "
    f"nranks 2 cudaDev {rank} commId 0xa - Init START\n"
    for rank in range(2)
)
STEPS = [20.0, 20.1, 19.9, 20.05, 19.95, 20.0]
ROWS = "run,verify_ms\n" + "".join(f"{run},{ms}\n" for run in ("before", "after") for ms in STEPS)


def test_a_grant_in_one_direction_alone_is_a_denied_pair() -> None:
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tOK\tOK\nGPU1\tOK\tX\tOK\nGPU2\tTNS\tOK\tX\n"
    found = inspect(text)
    assert found.facts["denied_pairs"] == [[0, 2]]
    assert codes(found) == ["p2p.disabled"]
    assert "TNS" in found.findings[0].evidence


def test_a_path_that_differs_by_direction_is_no_matrix() -> None:
    text = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tSYS\t X \n"
    assert codes(inspect(text)) == ["topo.unparseable"]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("Unable to open /tmp/topo.xml, not dumping topology: No space left on device", []),
        ("Call to posix_fallocate failed : No space left on device", ["shm.too_small"]),
        ("Could not map /dev/shm/nccl-Ab: No space left on device", ["shm.too_small"]),
        ("No space left on device for shared memory", ["shm.too_small"]),
    ],
)
def test_a_full_disk_is_no_lack_of_shared_memory(said: str, wanted: list[str]) -> None:
    assert codes(inspect(f"{START}node-a:10:10 [0] xml.cc:140 NCCL WARN {said}\n")) == wanted


@pytest.mark.parametrize(
    ("card", "wanted"),
    [
        ("NVIDIA H20", []),
        ("NVIDIA H800", []),
        ("NVIDIA A100-SXM4-80GB", []),
        ("NVIDIA H100 PCIe", ["nccl.ll128_forced"]),
        ("NVIDIA L20", ["nccl.ll128_forced"]),
    ],
)
def test_cards_whose_name_says_that_they_have_nvlink(card: str, wanted: list[str]) -> None:
    text = "".join(
        f"#  Rank  {rank} Group  0 Pid  {10 + rank} on node-a device  {rank} [0x1a] {card}\n"
        f"node-a:{10 + rank}:99 [{rank}] NCCL INFO NCCL_PROTO set by environment to LL128\n"
        for rank in range(2)
    )
    assert codes(inspect(START + text)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "# claimed: verify_ms=15.0\n" + ROWS,
        "# claimed: label=before verify_ms=15.0\n" + ROWS,
        '# claimed: {"label": "old", "verify_ms": 15.0}\n' + ROWS,
        "# claimed_verify_us: 15000\n" + ROWS,
        "# claimed.verify_ms = 15.0\n" + ROWS,
        ROWS.replace("_ms\n", "_ms,claimed_verify_ms\n", 1)
        .replace("20.0\nb", "20.0,15.0\nb", 1)
        .replace(".1\n", ".1,\n")
        .replace(".9\n", ".9,\n")
        .replace("5\n", "5,\n")
        .replace("20.0\n", "20.0,\n"),
        json.dumps(
            {
                "claimed_verify_ms": 15.0,
                "runs": [{"run": "old", "verify_ms": STEPS}, {"run": "new", "verify_ms": STEPS}],
            }
        ),
    ],
)
def test_a_note_of_the_old_number_however_it_is_written(text: str) -> None:
    found = inspect(text)
    assert found.facts["claimed_verify_ms"] == 15.0
    assert codes(found) == ["verify.baseline_not_reproduced", "verify.no_change"]


def test_a_note_of_the_new_number_is_held_against_the_new_run() -> None:
    noted = "# claimed: label=after verify_ms=23.0\n"
    slower = ROWS.replace("after,20", "after,23").replace("after,19", "after,22")
    assert "verify.baseline_not_reproduced" not in codes(inspect(noted + slower))
    assert "verify.baseline_not_reproduced" in codes(inspect(noted + ROWS))


@pytest.mark.parametrize(("option", "reaches"), [("NIL", False), ("NONE", False), ("ALL", True)])
def test_a_job_script_without_directives_is_the_one_that_sbatch_names(
    option: str, reaches: bool
) -> None:
    text = (
        f"==> submit.sh <==\nset -a; . ./p.env; set +a\nsbatch -N 1 --export={option} job.sh\n\n"
        "==> p.env <==\nNCCL_PROTO=LL\n\n"
        "==> job.sh <==\n#!/bin/bash\nsrun python -m sglang.launch_server --tp 8\n\n"
        "==> other.sh <==\n#!/bin/bash\n#SBATCH -N 2\nsrun hostname\n"
    )
    found = inspect(text, profile={"NCCL_PROTO": "LL"})
    assert found.facts["launcher"] == "slurm"
    assert found.facts["profile_reaches_worker"] == reaches
    assert ("env.lost_in_launcher" in codes(found)) == (not reaches)


OUT_OF_MEMORY = "node-a:10:10 [0] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'\n"
UNHANDLED = "RuntimeError: NCCL error: unhandled {} error (run with NCCL_DEBUG=INFO for details)\n"
COMPLETE = START.replace("- Init START", "- Init COMPLETE")


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        (START + OUT_OF_MEMORY, "medium"),
        (START + OUT_OF_MEMORY + UNHANDLED.format("cuda"), "high"),
        (START + UNHANDLED.format("system"), "high"),
        (START + "ncclRemoteError: A call failed possibly due to a network error\n", "high"),
        (START + COMPLETE + OUT_OF_MEMORY, "low"),
    ],
)
def test_a_failed_call_is_said_as_surely_as_the_log_tells(text: str, confidence: str) -> None:
    found = inspect(text)
    assert [(f.code, f.confidence) for f in found.findings] == [("nccl.call_failed", confidence)]
    assert not set(found.facts) & {"cuda_failure", "gave_up"}


def test_memory_is_named_where_it_ran_out() -> None:
    assert "gpu-memory-utilization" in inspect(START + OUT_OF_MEMORY).findings[0].next
    assert "Xid" in inspect(START + UNHANDLED.format("system")).findings[0].next


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("[0] transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'", []),
        ("[0] NCCL INFO Cuda failure 1 'invalid argument'", []),
        (
            "[0] shm.cc:590 NCCL WARN Cuda failure 217 "
            "'peer access is not supported between these two devices'",
            ["nccl.call_failed", "p2p.disabled"],
        ),
        (
            '[0] tuning.cc:70 NCCL WARN Unrecognized element token "X" when parsing "X"\n'
            + UNHANDLED.format("system"),
            ["nccl.invalid_value"],
        ),
    ],
)
def test_harmless_warnings_and_causes_with_a_code_of_their_own(
    line: str, wanted: list[str]
) -> None:
    assert codes(inspect(f"{START}node-a:10:10 {line}\n")) == wanted


@pytest.mark.parametrize(
    ("graph", "wanted"),
    [
        ("nChannels 0, bw 0.000000/0.000000, type LOC/PIX", []),
        ("nChannels 1, bw 0.100000/0.100000, type SYS/PIX", ["nccl.graph_search_collapse"]),
        ("nChannels 2, bw 0.240000/0.240000, type PHB/PIX", []),
    ],
)
def test_an_algorithm_that_the_machine_lacks_is_no_collapsed_graph(
    graph: str, wanted: list[str]
) -> None:
    line = f"node-a:10:10 [0] NCCL INFO Pattern 3, crossNic 0, {graph}, sameChannels 1\n"
    found = inspect(START + line)
    assert len(found.facts["graphs"]) == 1
    assert codes(found) == wanted


HEAD = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong\n"
)
ROW = "        1024 256 float sum -1 10.0 0.10 0.10 0 10.1 0.10 0.10 0\n"


@pytest.mark.parametrize("words", [6, 7, 8, 10, 11, 12])
def test_a_table_under_a_header_that_was_cut_is_of_no_known_layout(words: int) -> None:
    header = "#       " + "   ".join(HEAD.strip("# \n").split()[:words]) + "\n"
    assert codes(inspect(header + ROW)) == ["bench.unparseable_layout"]
    assert codes(inspect(HEAD + ROW)) == []


def test_variables_that_all_ranks_of_a_table_print_are_facts() -> None:
    ranks = "".join(
        f"#  Rank  {rank} Group  0 Pid  10 on node-a device  {rank} [0x1a] NVIDIA L40S\n"
        for rank in range(2)
    )
    lines = [f"node-a:10:9 [{r}] NCCL INFO NCCL_PROTO set by environment to LL\n" for r in (0, 1)]
    found = inspect(ranks + HEAD + ROW + "".join(lines), profile={"NCCL_PROTO": "LL"})
    assert found.facts["env"] == {"0": {"NCCL_PROTO": "LL"}, "1": {"NCCL_PROTO": "LL"}}
    assert "env" not in inspect(ranks + HEAD + ROW + lines[0]).facts
