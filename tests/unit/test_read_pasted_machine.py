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


def test_a_quotation_in_a_mail_is_read_as_what_it_quotes() -> None:
    quoted = "".join(f"> {line}\n" for line in MATRIX.splitlines())
    assert inspect(quoted).facts == inspect(MATRIX).facts


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


LINK = (
    "{bdf} {name}\n\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n"
    "\t\tLnkSta:\tSpeed {speed}, Width x{width}\n"
)
BUS = "\tBus: primary={0:02x}, secondary={1:02x}, subordinate=43, sec-latency=0\n"


def path(gpu: tuple[str, int], uplink: tuple[str, int]) -> str:
    """Return a GPU behind a switch: root port, the switch's two ports, and the card."""
    ends = (
        ("40:01.1", "PCI bridge: Intel", uplink),
        ("41:00.0", "PCI bridge: Broadcom", uplink),
        ("42:00.0", "PCI bridge: Broadcom", gpu),
        ("43:00.0", "3D controller: NVIDIA L40S", gpu),
    )
    text = ""
    for at, (bdf, name, (speed, width)) in enumerate(ends):
        listed = LINK.format(bdf=bdf, name=name, speed=speed, width=width)
        text += listed + (BUS.format(0x40 + at, 0x41 + at) if at < 3 else "")
    return text


@pytest.mark.parametrize(
    ("gpu", "uplink", "remark", "wanted"),
    [
        (("32GT/s", 16), ("32GT/s", 16), "", []),
        (("32GT/s", 8), ("32GT/s", 16), "", ["link.width_reduced"]),
        (("32GT/s", 16), ("32GT/s", 8), "", ["link.upstream_narrower"]),
        (("2.5GT/s (downgraded)", 16), ("2.5GT/s (downgraded)", 16), "", []),
        (("8GT/s (downgraded)", 16), ("32GT/s", 16), "# while the bench was running\n",
         ["link.gen_low_under_load"]),
        (("32GT/s", 16), ("8GT/s", 16), "# read under load\n", ["link.upstream_narrower"]),
        (("8GT/s", 16), ("8GT/s", 16), "# read on the idle machine\n", []),
    ],
)  # fmt: skip
def test_the_two_ports_of_a_switch_are_no_link(
    gpu: tuple[str, int], uplink: tuple[str, int], remark: str, wanted: list[str]
) -> None:
    assert codes(inspect(remark + path(gpu, uplink))) == wanted


def test_a_command_line_behind_the_devices_is_read() -> None:
    text = path(("32GT/s", 16), ("32GT/s", 16)) + "BOOT_IMAGE=/vmlinuz ro amd_iommu=on\n"
    assert inspect(text).facts["cmdline"] == {"amd_iommu": "on"}


def test_attribute_files_of_sysfs_as_tail_prints_them() -> None:
    device = "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0"
    values = {"class": "0x030200", "current_link_speed": "32.0 GT/s PCIe", "numa_node": "1",
              "current_link_width": "16", "max_link_speed": "32.0 GT/s PCIe",
              "max_link_width": "16"}  # fmt: skip
    text = "".join(f"==> {device}/{name} <==\n{value}\n\n" for name, value in values.items())
    gpu = inspect(text).facts["gpus"]["0000:41:00.0"]
    assert gpu == {"own": [32.0, 16], "effective": [32.0, 16], "narrowest_link": None, "numa": 1}


def test_a_listing_of_some_gpus_is_no_change_of_their_number() -> None:
    block = (
        "GPU 00000000:18:00.0\n    PCI\n        GPU Link Info\n            PCIe Generation\n"
        "                Max : 4\n                Current : 4\n            Link Width\n"
        "                Max : 16x\n                Current : 16x\n"
        "    Utilization\n        GPU : 9 %\n"
    )
    assert codes(inspect(f"Attached GPUs : 4\n{block}", stored={"gpus": 4})) == []
    assert codes(inspect(f"Attached GPUs : 3\n{block}", stored={"gpus": 4})) == [
        "topo.gpu_set_changed"
    ]


@pytest.mark.parametrize(
    ("block", "verdict", "wanted"),
    [
        (b"A=1\0NCCL_PROTO=LL\0", "live", []),
        (b"A=1\0NCCL_PROTO=LL\r\0", "differs", ["env.crlf", "env.value_differs"]),
        (b"A=1\0NCCL_PROTO=LL", "unknown", ["env.unknown"]),
        (b"NCCL_PROTO=LL\0A=", "live", []),
        (b"A=1\0B=2", "unknown", ["env.unknown"]),
        (b"A=1\0\0\0NCCL_PROTO=LL\0", "live", []),
        (b"A=1\0\0\0B=2\0", "unknown", ["env.unknown"]),
        (b"e::Worker_TP0\0NCCL_PROTO=LL\0", "unknown", ["env.unknown"]),
        (b"\0A=1\0NCCL_PROTO=LL\0", "unknown", ["env.unknown"]),
    ],
)
def test_what_a_copy_of_an_environment_decides(
    block: bytes, verdict: str, wanted: list[str]
) -> None:
    found = inspect(block, profile={"NCCL_PROTO": "LL"})
    assert found.facts["verdict"] == {"NCCL_PROTO": verdict}
    assert codes(found) == wanted


def test_entries_of_an_environment_are_given_as_they_are() -> None:
    assert inspect(b"A=x\ty\n\0B=1\0").facts["entries"] == {"A": "x\ty\n", "B": "1"}


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("cmdline", "BOOT_IMAGE=/v ro intel_iommu=on\n", "p2p.iommu_translation"),
        ("lspci.txt", path(("32GT/s", 8), ("32GT/s", 16)), "link.width_reduced"),
        ("p2p.txt", peers("GNS"), "p2p.disabled"),
        ("cut.txt", "\tGPU0\tGPU1\nGPU0\t X \tSYS\n", "topo.truncated"),
        ("nccl.log", "n:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct\n",
         "transport.shm"),
    ],
)  # fmt: skip
def test_inputs_beside_the_main_one_are_judged_by_themselves(
    name: str, text: str, code: str
) -> None:
    listing = path(("32GT/s", 16), ("32GT/s", 16))
    topology = f"==> topo.txt <==\n{MATRIX}\n==> fine.txt <==\n{listing}\n"
    found = inspect(f"{topology}==> {name} <==\n{text}")
    assert codes(found) == [code]
    if name in ("lspci.txt", "p2p.txt", "cut.txt"):
        assert found.findings[0].source == name
    assert codes(inspect(topology)) == []
