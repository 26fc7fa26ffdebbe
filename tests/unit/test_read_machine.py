"""Matrices, placement, links and tables in other layouts than the cases have."""
# ruff: noqa: E501

import pytest

from tests.unit.reading import codes, inspect

LINKS4 = [
    ["X", "PIX", "SYS", "SYS"],
    ["PIX", "X", "SYS", "SYS"],
    ["SYS", "SYS", "X", "PIX"],
    ["SYS", "SYS", "PIX", "X"],
]


def matrix(extra: list[str], values: list[list[str]], sep: str = "\t") -> str:
    text = sep + sep.join([f"GPU{i}" for i in range(4)] + extra) + "\n"
    for i, row in enumerate(LINKS4):
        text += sep.join([f"GPU{i}", *row, *values[i]]) + "\n"
    return text


def test_matrix_without_affinity_columns() -> None:
    facts = inspect(matrix([], [[]] * 4)).facts
    assert facts["numa"] is None
    assert facts["cpu_affinity"] is None
    assert facts["islands"] == [[0, 1], [2, 3]]


def test_matrix_with_empty_fields_in_a_paste_without_tabs() -> None:
    text = (
        "        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X      PHB                     0               N/A\n"
        "GPU1    PHB      X      0-15            0               N/A\n"
    )
    facts = inspect(text).facts
    assert facts["cpu_affinity"] == [None, "0-15"]
    assert facts["numa"] == [0, 0]


def test_matrix_as_a_markdown_table() -> None:
    text = "| | GPU0 | GPU1 | CPU Affinity |\n|---|---|---|---|\n| GPU0 | X | PHB | 0-7 |\n| GPU1 | PHB | X | 0-7 |\n"
    assert inspect(text).facts["matrix"] == [["X", "PHB"], ["PHB", "X"]]


def test_nvlink_matrix_of_sixteen_gpus() -> None:
    text = "\t" + "\t".join(f"GPU{i}" for i in range(16)) + "\tNIC0\tCPU Affinity\tNUMA Affinity\n"
    for i in range(16):
        row = [" X " if i == j else "NV18" for j in range(16)]
        text += "\t".join([f"GPU{i}", *row, "SYS", "0-95", "0"]) + "\n"
    text += "NIC0\t" + "\t".join(["SYS"] * 16) + "\t X \t\t\n\nLegend:\n\n  X    = Self\n"
    facts = inspect(text).facts
    assert facts["gpus"] == 16
    assert facts["nics"] == ["NIC0"]
    assert "nic_names" not in facts
    assert facts["islands"] == [list(range(16))]


def test_old_header_with_named_cards() -> None:
    text = (
        "\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\n"
        "GPU0\t X \tPIX\tPHB\tSYS\t0-19\nGPU1\tPIX\t X \tPHB\tSYS\t0-19\n"
        "mlx5_0\tPHB\tPHB\t X \tSYS\t\nmlx5_1\tSYS\tSYS\tSYS\t X \t\n"
    )
    assert inspect(text).facts["nics"] == ["mlx5_0", "mlx5_1"]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("SYS\tSYS\tPIX\tX", "SYS\tSYS\tPIX", "topo.truncated"),
        ("GPU3\tSYS\tSYS\tPIX\tX\n", "", "topo.truncated"),
        ("GPU2\tSYS\tSYS\tX\tPIX\n", "", "topo.truncated"),
        ("GPU1\tPIX\tX\tSYS\tSYS", "GPU1\tPIX\tX\tSYSSYS", "topo.unparseable"),
        ("GPU1\tPIX\tX\tSYS\tSYS", "GPU1\tPIX\tX\tSYS\tSYS\tSYS", "topo.unparseable"),
        ("GPU1\tPIX\tX\tSYS", "GPU1\tPIX\tX\tPIX", "topo.unparseable"),
        ("GPU0\tX\tPIX\tSYS\tSYS", "GPU0\tX\tPIX\tSYS\nSYS", "topo.unparseable"),
    ],
)
def test_damaged_matrix_is_refused_and_named(old: str, new: str, code: str) -> None:
    text = matrix([], [[]] * 4)
    damaged = text.replace(old, new, 1)
    assert damaged != text
    found = inspect(damaged.rstrip("\n") if code == "topo.truncated" else damaged)
    assert set(found.facts) == {"error"}
    assert codes(found) == [code]


def test_a_prompt_behind_the_matrix_is_no_row() -> None:
    assert inspect(matrix([], [[]] * 4) + "user@host:~$ exit\n").facts["gpus"] == 4


def test_nodes_of_the_gpus_changed_though_their_number_did_not() -> None:
    text = matrix(["NUMA Affinity"], [["0"], ["0"], ["1"], ["1"]])
    assert codes(inspect(text, stored={"gpus": 4, "numa": [0, 0, 1, 1]})) == []
    assert codes(inspect(text, stored={"gpus": 4, "numa": [0, 1, 0, 1]})) == [
        "topo.gpu_set_changed"
    ]


def test_peer_matrix_of_writes() -> None:
    text = "# nvidia-smi topo -p2p w\n \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n"
    found = inspect(text)
    assert (found.kind, found.facts["op"], found.facts["denied_pairs"]) == ("topo_p2p", "w", [])
    assert codes(found) == []


AFFINITY = ["0-31", "0-31", "32-63", "32-63"]


def placed(titles: list[str], cpus: list[str]) -> str:
    text = "==> topo.txt <==\n" + matrix(
        ["CPU Affinity", "NUMA Affinity"], [[a, str(i // 2)] for i, a in enumerate(AFFINITY)]
    )
    text += "\n==> ps.txt <==\n    PID COMMAND\n"
    text += "".join(f"   {500 + i} {title}\n" for i, title in enumerate(titles))
    text += "\n==> taskset.txt <==\n"
    return text + "".join(
        f"pid {500 + i}'s current affinity list: {c}\n" for i, c in enumerate(cpus)
    )


def test_workers_of_vllm_and_a_rank_that_uses_another_gpu() -> None:
    text = placed([f"VLLM::Worker_TP{i}" for i in range(2)], ["32-63", "0-31"])
    assert inspect(text).facts["misbound_ranks"] == [0]
    assert inspect(text, rank_gpu={"0": 2, "1": 3}).facts["misbound_ranks"] == [1]


def test_an_unbound_worker_is_not_on_the_wrong_node() -> None:
    text = placed([f"sglang::scheduler_TP{i}_EP{i}" for i in range(4)], ["0-63"] * 4)
    assert inspect(text).facts["misbound_ranks"] == []


def test_pipeline_stages_are_counted_into_ranks() -> None:
    titles = [f"sglang::scheduler_PP{pp}_TP{tp}" for pp in range(2) for tp in range(2)]
    found = inspect(placed(titles, ["0-31", "0-31", "0-31", "32-63"]))
    assert found.facts["worker_pids"] == {"0": 500, "1": 501, "2": 502, "3": 503}
    assert codes(found) == ["topo.numa_misbinding"]


QUERY = """
==============NVSMI LOG==============

Driver Version                            : 470.57.02
Attached GPUs                             : 1
GPU 00000000:3B:00.0
    Product Name                          : Tesla T4
    MIG Mode
        Current                           : N/A
    PCI
        Bus Id                            : 00000000:3B:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 3
                Current                   : {gen}
            Link Width
                Max                       : 16x
                Current                   : {width}x
        Tx Throughput                     : 0 KB/s
        Rx Throughput                     : 0 KB/s
    Performance State                     : P0
    Clocks Throttle Reasons
        Idle                              : Not Active
    Utilization
        Gpu                               : {util} %
        Memory                            : 3 %
"""


@pytest.mark.parametrize(
    ("gen", "width", "util", "wanted"),
    [
        (3, 16, 95, []),
        (1, 16, 0, []),
        (1, 16, 95, ["link.gen_low_under_load"]),
        (3, 4, 0, ["link.width_reduced"]),
        (1, 8, 90, ["link.width_reduced", "link.gen_low_under_load"]),
    ],
)
def test_query_of_an_old_driver(gen: int, width: int, util: int, wanted: list[str]) -> None:
    found = inspect(QUERY.format(gen=gen, width=width, util=util))
    assert found.facts["driver"] == "470.57.02"
    assert found.facts["gpus"][0]["util"] == util
    assert codes(found) == wanted


def test_query_as_csv() -> None:
    text = (
        "index, pci.bus_id, pcie.link.gen.current, pcie.link.gen.max, pcie.link.width.current, "
        "pcie.link.width.max, pstate, utilization.gpu [%]\n"
        "0, 00000000:18:00.0, 4, 4, 8, 16, P0, 97 %\n1, 00000000:3B:00.0, 1, 4, 16, 16, P8, 0 %\n"
    )
    found = inspect(text)
    assert found.facts["affected"] == ["00000000:18:00.0"]
    assert codes(found) == ["link.width_reduced"]


LSPCI = """40:01.1 PCI bridge: Intel Corporation Device 347a (rev 04)
	Bus: primary=40, secondary=41, subordinate=41, sec-latency=0
		LnkCap:	Port #0, Speed 32GT/s, Width x{port}, ASPM L1
		LnkSta:	Speed 2.5GT/s (downgraded), Width x{sta}
		LnkCap2: Supported Link Speeds: 2.5-32GT/s
		ACSCtl:	SrcValid{src} TransBlk- ReqRedir{red} CmpltRedir- UpstreamFwd- EgressCtrl-
41:00.0 3D controller: NVIDIA Corporation Device 26b9 (rev a1)
		LnkCap:	Port #0, Speed 16GT/s, Width x16, ASPM L1
		LnkSta:	Speed 2.5GT/s (downgraded), Width x{sta}
"""


@pytest.mark.parametrize(
    ("port", "sta", "src", "red", "wanted"),
    [
        (16, 16, "-", "-", []),
        (16, 16, "+", "-", []),
        (16, 16, "+", "+", ["p2p.acs_redirect"]),
        (16, 8, "-", "-", ["link.width_reduced"]),
        (8, 8, "-", "-", []),
    ],
)
def test_lspci_lanes_and_redirection(
    port: int, sta: int, src: str, red: str, wanted: list[str]
) -> None:
    found = inspect(LSPCI.format(port=port, sta=sta, src=src, red=red))
    assert codes(found) == wanted
    assert found.facts["devices"][0]["cap_speed"] == 32


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("intel_iommu=on", ["p2p.iommu_translation"]),
        ("amd_iommu=on iommu=pt", []),
        ("iommu.passthrough=1 intel_iommu=on,sm_on", []),
        ("intel_iommu=on,sm_on", ["p2p.iommu_translation"]),
        ("amd_iommu=off", []),
        ("quiet", []),
    ],
)
def test_kernel_words_on_the_iommu(words: str, wanted: list[str]) -> None:
    text = "==> lspci.txt <==\n" + LSPCI.format(port=16, sta=16, src="-", red="-")
    text += f"\n==> cmdline <==\nBOOT_IMAGE=/vmlinuz root=UUID=1 ro {words}\n"
    assert codes(inspect(text)) == wanted


def sysfs(own: str, up: str, remark: str = "") -> str:
    speed, width = own.split("x")
    uspeed, uwidth = up.split("x")
    base = "/sys/devices/pci0000:c0/0000:c0:01.1"
    lines = [remark] if remark else []
    for path, s, w, kind in (
        (base, uspeed, uwidth, "0x060400"),
        (base + "/0000:c1:00.0", uspeed, uwidth, "0x060400"),
        (base + "/0000:c1:00.0/0000:c2:04.0", speed, width, "0x060400"),
        (base + "/0000:c1:00.0/0000:c2:04.0/0000:c5:00.0", speed, width, "0x030000"),
    ):
        lines += [f"{path}/class:{kind}", f"{path}/current_link_speed:{s} GT/s PCIe",
                  f"{path}/current_link_width:{w}", f"{path}/max_link_speed:32.0 GT/s PCIe",
                  f"{path}/max_link_width:16"]  # fmt: skip
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("own", "up", "remark", "wanted"),
    [
        ("32.0x16", "32.0x16", "", []),
        ("32.0x16", "32.0x8", "", ["link.upstream_narrower"]),
        ("32.0x16", "16.0x16", "", ["link.upstream_narrower"]),
        ("2.5x16", "2.5x16", "", []),
        ("2.5x16", "2.5x16", "# read under load", ["link.gen_low_under_load"]),
        ("32.0x8", "32.0x16", "", ["link.width_reduced"]),
    ],
)
def test_sysfs_paths_as_grep_prints_them(own: str, up: str, remark: str, wanted: list[str]) -> None:
    found = inspect(sysfs(own, up, remark))
    assert codes(found) == wanted
    narrowest = found.facts["gpus"]["0000:c5:00.0"]["narrowest_link"]
    assert (narrowest is not None) == ("link.upstream_narrower" in wanted)
    if narrowest:
        assert narrowest == ["0000:c0:01.1", "0000:c1:00.0"]
