"""Sweep files: the shipped ones work, and every mistake is named."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import CollbenchError
from collbench.space import load_spec, plan
from collbench.space.build import Plan
from collbench.space.spec import shipped, spec_of

NCCL = (2, 28, 9)
DECODE: dict[str, Any] = tomllib.loads(shipped()["decode"].read_text(encoding="utf-8"))


def decode(**changes: Any) -> dict[str, Any]:
    return {**DECODE, **changes}


def planned(plain: dict[str, Any], **given: Any) -> Plan:
    return plan(spec_of(plain, name="mine", where="mine.toml"), **({"version": NCCL} | given))


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_sweep_has_a_space_a_step_and_a_guard(name: str) -> None:
    spec = load_spec(name)
    built = plan(spec, version=NCCL if spec.table.library == "nccl" else ())
    assert built.space.size() > 10
    assert built.notes == ()
    assert spec.step(2).calls
    assert spec.guard()
    assert set(spec.search_guard()) <= set(spec.guard())
    for seed in built.space.seeds:
        assert built.space.contains(dict(seed))


def test_the_decode_step_is_the_one_of_the_recorded_landscape() -> None:
    calls = load_spec("decode").step(2).calls
    assert [(c.collective, c.size_bytes, c.dtype, c.count) for c in calls] == [
        ("all_reduce", 57344, "bfloat16", 122),
        ("all_gather", 1310720, "bfloat16", 1),
    ]
    assert calls[0].compute == ((4, 7168, 1792), (4, 1792, 7168))


def test_no_hazard_is_in_the_space_of_a_shipped_sweep_without_allow() -> None:
    from collbench.knobs import registry

    for name in shipped():
        built = plan(load_spec(name))
        for one in built.space.axes:
            for choice in one.choices:
                for variable, value in choice.settings:
                    assert registry()[variable].hazard_of(value) is None


def test_an_allowed_hazard_gets_a_space_of_its_own() -> None:
    built = planned(DECODE, allow=["graph-mixing"])
    assert set(built.hazards) == {"graph-mixing"}
    assert [w for w in built.hazards["graph-mixing"].walk() if w] == [
        {"NCCL_GRAPH_MIXING_SUPPORT": "0"}
    ]
    assert built.not_searched == ("p2p",)
    assert not any("NCCL_GRAPH_MIXING_SUPPORT" in w for w in built.space.walk())


def test_bare_tree_is_refused_and_per_function_tree_only_where_nccl_knows_it() -> None:
    axis = {"knob": "NCCL_ALGO", "values": ["Tree"]}
    with pytest.raises(CollbenchError, match="NCCL_ALGO=Tree"):
        planned(decode(axis=[axis]))
    tree = {"NCCL_ALGO": "allreduce:tree"}
    for version, there in (((2, 23, 4), False), (NCCL, True), ((2, 30, 7), True), ((2, 31), False)):
        built = planned(DECODE, version=version)
        assert built.space.contains(tree) == there
        assert any("allreduce:tree" in note for note in built.notes) != there


def test_a_pinned_variable_is_fixed_and_said() -> None:
    built = planned(DECODE, environ={"NCCL_MAX_NCHANNELS": "8", "HOME": "/root"})
    assert built.notes == (
        "NCCL_MAX_NCHANNELS is pinned in the environment: fixed, part of the baseline",
    )
    assert not any("NCCL_MAX_NCHANNELS" in w for w in built.space.walk())
    assert built.space.contains({"NCCL_MIN_NCHANNELS": "8"})


def test_everything_pinned_leaves_nothing_to_search() -> None:
    axis = {"knob": "NCCL_PROTO", "values": ["LL"]}
    with pytest.raises(CollbenchError, match="nothing is left"):
        planned(decode(axis=[axis]), environ={"NCCL_PROTO": "Simple"})


def test_keeping_the_order_leaves_out_what_changes_it() -> None:
    axes = [
        {"knob": "NCCL_PROTO", "values": ["LL"]},
        {"knob": "NCCL_CUMEM_ENABLE", "values": [0]},
    ]
    built = planned(decode(axis=axes), keep_order=True)
    assert [w for w in built.space.walk() if w] == [{"NCCL_CUMEM_ENABLE": "0"}]
    assert "numerics" in built.not_searched
    with pytest.raises(CollbenchError, match="order of summation") as caught:
        planned(decode(axis=axes[:1]), keep_order=True)
    assert "--keep-order" in caught.value.fix


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": 1}, ["mine.toml", "colour", "allowed are", "axis"]),
        ({"backend": "gloo"}, ["backend", "'nccl' or 'mpi'", "'gloo'"]),
        ({"library": "openmpi"}, ["library", "'openmpi'", "'nccl'"]),
        ({"schema": 2}, ["schema", "2"]),
        ({"axis": []}, ["axis"]),
        ({"axis": [{"knob": "NCCL_PROTOO", "values": ["LL"]}]}, ["NCCL_PROTOO", "NCCL_PROTO"]),
        (
            {"axis": [{"knob": "NCCL_NTHREADS", "values": [100]}]},
            ["axis[0]", "NCCL_NTHREADS=100", "64 to 512", "multiples of 32"],
        ),
        (
            {"axis": [{"knob": "NCCL_PROTO", "values": ["LL", "Fast"]}]},
            ["NCCL_PROTO=Fast", "LL128"],
        ),
        (
            {"axis": [{"knob": "NCCL_PROTO", "values": ["^LL"]}]},
            ["NCCL_PROTO=^LL", "hazard (ll128)", "--allow ll128"],
        ),
        (
            {"axis": [{"knob": "NCCL_PROTO", "values": ["LL"], "hazard": "fire"}]},
            ["hazard", "'fire'", "graph-mixing"],
        ),
        ({"axis": [{"knob": "OMPI_MCA_smsc", "values": ["^cma"]}]}, ["OMPI_MCA_smsc", "nccl"]),
        ({"axis": [{"values": ["LL"]}]}, ["exactly one of knob"]),
        ({"axis": [{"least": "NCCL_MIN_NCHANNELS", "equal": [2]}]}, ["belong together"]),
        (
            {"axis": [{"knob": "NCCL_PROTO"}, {"choices": [{"NCCL_PROTO": "LL"}]}]},
            ["NCCL_PROTO", "one axis only"],
        ),
        ({"guard": {"sizes": ["64X"]}}, ["guard.sizes", "64X"]),
        ({"guard": {"collectives": ["allreduce"]}}, ["guard.collectives", "all_reduce"]),
        ({"budget": {"search": 2}}, ["budget.search", "4"]),
        ({"budget": {"pairs": [40, 14]}}, ["budget.pairs", "[40, 14]"]),
        ({"budget": {"serach": 9}}, ["budget.serach", "search"]),
        ({"baseline": {"NCCL_NOSUCH": 1}}, ["baseline.NCCL_NOSUCH", "unknown variable"]),
        ({"seeds": [{"NCCL_PROTO": "LL,Simple"}]}, ["seeds", "LL,Simple"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_mistake_names_file_field_value_and_what_is_allowed(
    changes: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(CollbenchError) as caught:
        planned(decode(**changes))
    for word in ["mine.toml", *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize("text", ["axis = [", "\x00", "schema = 1"])
def test_a_broken_file_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(CollbenchError, match=r"mine\.toml"):
        load_spec(str(path))


def test_an_unknown_name_lists_the_shipped_sweeps() -> None:
    with pytest.raises(CollbenchError, match="decode, mpi, mpich, prefill, quickstart"):
        load_spec("decodee")


def test_the_digest_changes_with_what_defines_a_study_only() -> None:
    def digest(**changes: Any) -> str:
        return spec_of(decode(**changes), name="x", where="x").digest()

    assert digest() == digest(title="another") == digest(budget={"search": 99})
    assert digest() != digest(guard={"sizes": ["64K"], "search": ["64K"]})
