"""Matrices, affinities and links as people paste them: other layouts, parts, and combinations."""

import pytest

from tests.unit.reading import codes, inspect

MATRIX = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tPHB\tSYS\tSYS\t\t0\t\tN/A\n"
    "GPU1\tPHB\t X \tSYS\tSYS\t0-15\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tPHB\t\t1\t\tN/A\n"
    "GPU3\tSYS\tSYS\tPHB\t X \t16-31\t1\t\tN/A\n"
)


def peers(cell: str, command: str = "") -> str:
    return f"{command}\n \tGPU0\tGPU1\t\n GPU0\tX\t{cell}\t\n GPU1\t{cell}\tX\t\n"


@pytest.mark.parametrize("text", [MATRIX, MATRIX.expandtabs(8)])
def test_an_empty_field_stays_empty_when_tabs_became_blanks(text: str) -> None:
    facts = inspect(text).facts
    assert facts["numa"] == [0, 0, 1, 1]
    assert facts["cpu_affinity"] == [None, "0-15", None, "16-31"]


def test_a_value_whose_column_cannot_be_told_is_not_guessed() -> None:
    text = (
        " GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X SYS  0 N/A\nGPU1 SYS X 8 1 N/A\n"
    )
    assert codes(inspect(text)) == ["topo.unparseable"]


def test_a_row_without_its_end_is_truncated_even_between_whole_rows() -> None:
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tPHB\tSYS\nGPU1\tPHB\t X\nGPU2\tSYS\tSYS\t X \n"
    assert codes(inspect(text)) == ["topo.truncated"]


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [("r", ["p2p.disabled"]), ("w", ["p2p.disabled"]), ("n", []), ("a", [])],
)
def test_lack_of_nvlink_or_atomics_is_no_lack_of_peer_access(
    operation: str, wanted: list[str]
) -> None:
    found = inspect(peers("NS", f"$ nvidia-smi topo -p2p {operation}"))
    assert found.facts["denied_pairs"] == [[0, 1]]
    assert codes(found) == wanted


def test_a_second_matrix_of_the_file_counts_as_well() -> None:
    text = f"==> read.txt <==\n{peers('OK')}\n==> write.txt <==\n{peers('CNS')}"
    found = inspect(text)
    assert found.facts["denied_pairs"] == []
    assert codes(found) == ["p2p.disabled"]


@pytest.mark.parametrize(
    "cpus",
    [
        "==> /proc/10/status <==\nName:\tx\nCpus_allowed_list:\t16-31\n\n"
        "==> /proc/11/status <==\nName:\tx\nCpus_allowed_list:\t0-31\n",
        "==> cpus.txt <==\n/proc/10/status:Cpus_allowed_list:\t16-31\n"
        "/proc/11/status:Cpus_allowed_list:\t0-31\n",
    ],
)
def test_affinities_of_several_files_and_of_grep(cpus: str) -> None:
    listing = "==> ps.txt <==\nPID COMMAND\n10 VLLM::Worker_TP0\n11 VLLM::Worker_TP1\n\n"
    found = inspect(f"==> topo.txt <==\n{MATRIX}\n{listing}{cpus}")
    assert found.facts["worker_cpus"] == {"0": "16-31", "1": "0-31"}
    assert found.facts["misbound_ranks"] == [0]
    assert codes(found) == ["topo.numa_misbinding"]


def test_the_cpus_of_other_nodes_tell_where_those_of_the_own_are_not_listed() -> None:
    topology = MATRIX.replace("0-15", "")
    listing = "==> ps.txt <==\nPID COMMAND\n10 VLLM::Worker_TP0\n11 VLLM::Worker_TP1\n\n"
    cpus = "==> t.txt <==\npid 10's current affinity list: 20\npid 11's current affinity list: 3\n"
    found = inspect(f"==> topo.txt <==\n{topology}\n{listing}{cpus}")
    assert found.facts["misbound_ranks"] == [0]
