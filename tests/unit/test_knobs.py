"""The registry is consistent, and the rules see what the library makes of a value."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.errors import CollbenchError
from collbench.knobs import HAZARDS, knob, lists, registry
from collbench.knobs.rules import check_settings, check_value, unknown
from collbench.knobs.servers import SERVERS, all_writes, baseline, chosen_writes, server_writes

FORCING_LL128 = [
    *("LL128", "ll128", "LL,LL128,Simple", "^LL", "^Simple", "^LL,Simple"),
    *("LL;allreduce:^LL", "allreduce:^LL", "allgather:LL128", "LL;broadcast:ll128"),
    "^Simple;allreduce:LL",
]


def codes(name: str, value: str, version: tuple[int, ...] = ()) -> list[str]:
    return [fault.code for fault in check_value(name, value, version)]


@pytest.mark.parametrize("name", registry())
def test_every_entry_is_complete_and_its_proposals_are_valid(name: str) -> None:
    entry = registry()[name]
    assert entry.moves
    assert entry.source
    assert entry.since or entry.library == "server", "since is missing"
    assert not entry.until or entry.since < entry.until
    assert entry.hazard in (*HAZARDS, "never", None)
    assert set(entry.hazard_values.values()) <= {*HAZARDS, "never"}
    assert set(entry.requires) <= set(registry())
    if entry.type == "enum":
        assert entry.values
        assert set(entry.propose) <= set(entry.values)
    if entry.type in ("int", "size"):
        assert entry.minimum is not None or entry.maximum is not None
    for value in entry.candidates:
        assert [f for f in check_value(entry, value) if f.level == "invalid"] == []
    if entry.default is not None and entry.type != "list":
        assert [f for f in check_value(entry, entry.default) if f.level == "invalid"] == []


@pytest.mark.parametrize("value", FORCING_LL128)
def test_every_way_to_switch_ll128_on_is_a_hazard(value: str) -> None:
    assert knob("NCCL_PROTO").hazard_of(value) == "ll128"
    assert "nccl.ll128_forced" in codes("NCCL_PROTO", value)


@pytest.mark.parametrize("value", ["LL", "Simple", "LL,Simple", "^LL128", "LL;allreduce:^LL128"])
def test_lists_without_ll128_are_no_hazard(value: str) -> None:
    assert knob("NCCL_PROTO").hazard_of(value) is None
    assert codes("NCCL_PROTO", value) == []


@given(
    st.booleans(),
    st.lists(st.sampled_from(["LL", "ll128", "LL128", "Simple", "simple"]), min_size=1),
    st.sampled_from(["", "allreduce:", "AllGather:"]),
)
def test_ll128_hazard_is_membership_turned_round_by_a_caret(
    negated: bool, names: list[str], function: str
) -> None:
    value = function + ("^" if negated else "") + ",".join(names)
    on = ("ll128" in [name.lower() for name in names]) is not negated
    assert (knob("NCCL_PROTO").hazard_of(value) == "ll128") is on


@pytest.mark.parametrize("value", ["PHB", "SYS", "PXN", "P2C", "3", "4", "5", "12"])
def test_peer_levels_beyond_the_default_are_a_hazard(value: str) -> None:
    assert knob("NCCL_P2P_LEVEL").hazard_of(value) == "p2p"


@pytest.mark.parametrize("value", ["LOC", "NVL", "PIX", "PXB", "0", "1", "2"])
def test_peer_levels_up_to_the_default_are_none(value: str) -> None:
    assert knob("NCCL_P2P_LEVEL").hazard_of(value) is None


@pytest.mark.parametrize(
    ("name", "value", "effective"),
    [
        ("NCCL_BUFFSIZE", "4M", "4"),
        ("NCCL_P2P_DISABLE", "yes", "0"),
        ("NCCL_MIN_NCHANNELS", "010", "8"),
        ("NCCL_MIN_NCHANNELS", "0x10", "16"),
        ("NCCL_NTHREADS", "100", "512"),
        ("NCCL_P2P_LEVEL", "1", "PIX"),
        ("NCCL_P2P_LEVEL", "3", "PHB"),
        ("NCCL_MIN_CTAS", "4 ", "4"),
    ],
)
def test_what_nccl_makes_of_a_misspelt_value_is_said(name: str, value: str, effective: str) -> None:
    faults = [f for f in check_value(name, value) if f.level == "invalid"]
    assert [(f.code, f.effective) for f in faults] == [("nccl.invalid_value", effective)]


@pytest.mark.parametrize(
    ("name", "value", "version", "expected"),
    [
        ("NCCL_ALGO", "Tree", (2, 28, 9), ["nccl.algo_unavailable"]),
        ("NCCL_ALGO", "Tree", (), ["nccl.algo_unavailable"]),
        ("NCCL_ALGO", "allreduce:tree", (2, 28, 9), []),
        ("NCCL_ALGO", "allreduce:tree", (2, 31), ["nccl.algo_unavailable"]),
        ("NCCL_ALGO", "ring,tree;allreduce:tree", (2, 31), []),
        ("NCCL_ALGO", "allreduce:tree", (2, 23, 4), ["nccl.invalid_value"]),
        ("NCCL_ALGO", "Ring,Tree", (2, 23, 4), []),
        ("NCCL_ALGO", "Ring;Tree", (2, 28, 9), ["nccl.invalid_value"]),
        ("NCCL_ALGO", "allreduce:Bush", (), ["nccl.invalid_value"]),
        ("NCCL_ALGO", "sum:Ring", (), ["nccl.invalid_value"]),
        ("NCCL_PROTO", "LL, Simple", (), ["nccl.invalid_value"]),
        ("NCCL_PROTO", "", (), ["nccl.invalid_value"]),
        ("NCCL_P2P_LEVEL", "pix", (), ["nccl.invalid_value"]),
        ("NCCL_P2P_LEVEL", "C2C", (2, 26), ["nccl.invalid_value"]),
        ("NCCL_P2P_LEVEL", "C2C", (2, 27), []),
        ("NCCL_SHM_MEMCPY_MODE", "2", (2, 30, 4), []),
        ("NCCL_SHM_MEMCPY_MODE", "2", (2, 30, 7), ["nccl.unknown_variable"]),
        ("NCCL_RUNTIME_CONNECT", "0", (2, 21), ["nccl.unknown_variable"]),
        ("NCCL_MAX_CTAS", "0", (), ["nccl.invalid_value"]),
        ("NCCL_GRAPH_REGISTER", "1", (2, 28), ["env.equals_default"]),
        ("NCCL_GRAPH_REGISTER", "1", (2, 18), []),
        ("NCCL_GRAPH_FILE", "/etc/graph.xml", (), ["hazard.loads_code"]),
        ("NCCL_GRAPH_FILE", "graph.xml", (), ["nccl.invalid_value", "hazard.loads_code"]),
        ("NCCL_DEBUG", "info", (), []),
        ("NCCL_NVLS_ENABLE", "0", (), []),
        ("OMPI_MCA_btl_sm_eager_limit", "64k", (), []),
        ("OMPI_MCA_coll_tuned_allreduce_algorithm", "7", (), ["env.invalid_value"]),
        ("OMPI_MCA_mpi_yield_when_idle", "true", (), []),
    ],
)
def test_rules_by_version(
    name: str, value: str, version: tuple[int, ...], expected: list[str]
) -> None:
    assert codes(name, value, version) == expected


def test_a_minimum_above_its_maximum_is_found() -> None:
    faults = check_settings({"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "4"})
    assert [f.code for f in faults] == ["nccl.min_over_max"]
    assert check_settings({"NCCL_MIN_NCHANNELS": "4", "NCCL_MAX_NCHANNELS": "4"}) == []


def test_an_algorithm_of_open_mpi_needs_the_dynamic_rules() -> None:
    name = "OMPI_MCA_coll_tuned_allreduce_algorithm"
    assert [f.code for f in check_settings({name: "3"})] == ["env.needs_other"]
    rules = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1"}
    assert check_settings({name: "3", **rules}) == []


def test_an_unknown_name_gets_the_nearest() -> None:
    fault = unknown("NCCL_MIN_NCHANELS")
    assert (fault.code, fault.level) == ("env.unknown_variable", "invalid")
    assert "NCCL_MIN_NCHANNELS" in fault.next
    with pytest.raises(CollbenchError, match="NCCL_MIN_NCHANNELS"):
        check_value("NCCL_MIN_NCHANELS", "1")


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=40))
def test_no_text_makes_the_rules_stumble(value: str) -> None:
    for entry in registry().values():
        check_value(entry, value)
        entry.hazard_of(value)


def test_every_variable_a_server_writes_is_registered() -> None:
    for server in SERVERS:
        for write in all_writes(server):
            assert write.name in registry(), write.name


def test_what_sglang_writes_depends_on_its_options() -> None:
    assert baseline("none") == {}
    assert baseline("sglang")["NCCL_CUMEM_ENABLE"] == "0"
    assert server_writes("sglang")["CUDA_DEVICE_MAX_CONNECTIONS"].when == "overwrites"
    chosen = chosen_writes("sglang", ["--tp", "4", "--enable-symm-mem"])
    assert (chosen["NCCL_CUMEM_ENABLE"].value, chosen["NCCL_CUMEM_ENABLE"].when) == (
        "1",
        "overwrites",
    )
    with pytest.raises(CollbenchError, match="tgi"):
        server_writes("tgi")


def test_a_list_decides_only_the_functions_it_names() -> None:
    elements = knob("NCCL_ALGO").elements
    assert lists.per_function("allreduce:tree", elements) == {"AllReduce": {"Tree"}}
    assert set(lists.per_function("ring", elements)) == set(lists.FUNCTIONS)
