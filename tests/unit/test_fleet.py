"""A fleet from records alone: who differs from its class, and who has regressed."""

import dataclasses
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from collbench.cli.fleet import fleet as command
from collbench.errors import CollbenchError
from collbench.fleet.classes import classes, deviations
from collbench.fleet.collect import collect
from collbench.fleet.table import document, text
from collbench.profiles import Profile, Scope
from collbench.profiles.store import publish

ROOT = Path(__file__).parents[2]
SETTINGS = {"NCCL_MIN_NCHANNELS": "16"}


def facts(host: str, **more: Any) -> dict[str, Any]:
    gpu = {"name": "NVIDIA H200", "numa_node": 0}
    return {
        "host": host,
        "gpus": [gpu, gpu],
        "cpu": "EPYC",
        "cpus": 64,
        "numa_nodes": 2,
        "library": "NCCL 2.28.9",
        "driver": "580.1",
        **more,
    }


def leave_profile(
    root: Path,
    host: str,
    settings: dict[str, str] = SETTINGS,
    default_us: float = 4000.0,
    **more: Any,
) -> Path:
    profile = Profile(
        settings=settings,
        scope=Scope(workload="decode", nranks=2),
        machine=facts(host, **more),
        evidence={"ratio": 0.92, "default_us": default_us},
    )
    return publish(root, host, profile)


def leave_pairs(
    root: Path, host: str, gbs: float, us: float = 10.0, created: str = "2026-11-29T20:00:00Z"
) -> None:
    record = {
        "schema": 1,
        "kind": "run",
        "created": created,
        "machine": facts(host),
        "launches": [
            {
                "pairs": [
                    {"src": a, "dst": b, "latency_us": us, "bandwidth_gbs": gbs}
                    for a, b in ((0, 1), (1, 0))
                ]
            }
        ],
    }
    (root / host).mkdir(exist_ok=True)
    (root / host / f"bench-{created[:10]}.json").write_text(json.dumps(record))


def leave_check(root: Path, host: str, verdict: str, created: str, ratio: float = 1.0) -> None:
    plain = {"schema": 1, "command": "check", "verdict": verdict, "ratio": ratio}
    folder = root / host / "checks"
    folder.mkdir(exist_ok=True, parents=True)
    name = f"check-{created.replace(':', '')}.json"
    (folder / name).write_text(json.dumps({**plain, "created": created}))


def found(root: Path) -> dict[str, list[str]]:
    return {
        one["machine"]: [deviation["code"] for deviation in one["deviations"]]
        for one in document(collect(root))["machines"]
    }


def test_a_copy_of_a_machines_results_confirms_nothing_again(tmp_path: Path) -> None:
    leave_profile(tmp_path, "a")
    shutil.copytree(tmp_path / "a", tmp_path / "etc")
    (copied,) = classes(collect(tmp_path).machines)
    assert not copied.good
    leave_profile(tmp_path, "b")
    (two,) = classes(collect(tmp_path).machines)
    assert two.good


def test_machines_that_agree_are_no_finding(tmp_path: Path) -> None:
    for host in ("a", "b", "c"):
        leave_profile(tmp_path, host)
        leave_pairs(tmp_path, host, 50.0)
        leave_check(tmp_path, host, "as_recorded", "2026-11-29T21:00:00Z")
    plain = document(collect(tmp_path), now=datetime(2026, 11, 30, 21, tzinfo=UTC))
    assert plain["exit_code"] == 0
    assert [one["machine"] for one in plain["machines"]] == ["a", "b", "c"]
    assert plain["machines"][0]["last_check"]["age_days"] == 1.0
    assert [(c["settings"], c["good"]) for c in plain["classes"]] == [(SETTINGS, True)]
    shown = text(plain)
    assert "8.0 % less" in shown
    assert "as recorded, 1 d ago" in shown
    assert "class 2x NVIDIA H200 (3 machines): NCCL_MIN_NCHANNELS=16: confirmed on two" in shown


def test_another_library_on_one_of_three_is_named_with_both_versions(tmp_path: Path) -> None:
    leave_profile(tmp_path, "a")
    leave_profile(tmp_path, "b")
    leave_profile(tmp_path, "c", library="NCCL 2.27.3")
    assert found(tmp_path) == {"a": [], "b": [], "c": ["differs.library"]}
    shown = text(document(collect(tmp_path)))
    assert "c: library NCCL 2.27.3, elsewhere NCCL 2.28.9" in shown


def test_two_of_five_that_agree_with_each_other_still_deviate(tmp_path: Path) -> None:
    for host in ("a", "b", "c"):
        leave_profile(tmp_path, host)
    for host in ("d", "e"):
        leave_profile(tmp_path, host, driver="570.9")
    told = found(tmp_path)
    assert {host for host, codes in told.items() if codes == ["differs.driver"]} == {"d", "e"}
    assert [told[host] for host in "abc"] == [[], [], []]


def test_the_newest_profile_of_a_machine_is_shown(tmp_path: Path) -> None:
    for value, day in (("4", "03"), ("8", "28"), ("2", "15")):
        profile = Profile(
            settings={"NCCL_MIN_NCHANNELS": value},
            machine=facts("a"),
            created=f"2026-01-{day}T00:00:00Z",
        )
        publish(tmp_path, "a", profile)
    (machine,) = collect(tmp_path).machines
    assert machine.profile is not None
    assert machine.profile.settings == {"NCCL_MIN_NCHANNELS": "8"}


def test_a_tie_of_two_names_both(tmp_path: Path) -> None:
    leave_profile(tmp_path, "a")
    leave_profile(tmp_path, "b", driver="570.9")
    assert found(tmp_path) == {"a": ["differs.driver"], "b": ["differs.driver"]}


@pytest.mark.parametrize(
    ("slow", "codes"),
    [
        ({"gbs": 20.0}, ["slow_link", "slow_link"]),
        ({"gbs": 36.0}, []),
        ({"gbs": 50.0, "us": 30.0}, ["slow_link", "slow_link"]),
    ],
)
def test_a_slow_link_is_wholeagainst_the_same_pair_elsewhere(
    tmp_path: Path, slow: dict[str, float], codes: list[str]
) -> None:
    leave_pairs(tmp_path, "a", 50.0)
    leave_pairs(tmp_path, "b", 48.0)
    leave_pairs(tmp_path, "c", **slow)
    assert found(tmp_path) == {"a": [], "b": [], "c": codes}


def test_only_the_newest_pairs_count(tmp_path: Path) -> None:
    leave_pairs(tmp_path, "a", 50.0)
    leave_pairs(tmp_path, "b", 5.0, created="2026-11-28T20:00:00Z")
    leave_pairs(tmp_path, "b", 50.0)
    assert found(tmp_path) == {"a": [], "b": []}


@pytest.mark.parametrize("verdict", ["regressed", "no_longer_helps"])
def test_a_regression_counts_until_a_newer_check_is_fine(tmp_path: Path, verdict: str) -> None:
    leave_profile(tmp_path, "a")
    leave_check(tmp_path, "a", verdict, "2026-11-29T21:00:00Z", 1.08)
    assert found(tmp_path) == {"a": ["regressed"]}
    assert "ratio 1.080" in text(document(collect(tmp_path)))
    leave_check(tmp_path, "a", "as_recorded", "2026-11-29T22:00:00Z")
    assert found(tmp_path) == {"a": []}


def test_a_profile_that_is_not_that_of_its_class_deviates(tmp_path: Path) -> None:
    leave_profile(tmp_path, "a")
    leave_profile(tmp_path, "b")
    leave_profile(tmp_path, "c", {"NCCL_PROTO": "LL"})
    assert found(tmp_path) == {"a": [], "b": [], "c": ["settings"]}


def test_a_slow_default_is_wholefor_the_same_workload_only(tmp_path: Path) -> None:
    for host, default_us in (("a", 4000.0), ("b", 4100.0), ("c", 4900.0)):
        leave_profile(tmp_path, host, default_us=default_us)
    assert found(tmp_path) == {"a": [], "b": [], "c": ["slow_default"]}
    group = classes(collect(tmp_path).machines)[0]
    other = group.machines[2]
    assert other.profile is not None
    other.profile = dataclasses.replace(other.profile, scope=Scope(workload="prefill"))
    assert deviations(other, group) == []


def test_other_hardware_is_another_class(tmp_path: Path) -> None:
    leave_profile(tmp_path, "a")
    leave_profile(tmp_path, "b", cpus=32, library="NCCL 2.20.5")
    plain = document(collect(tmp_path))
    assert plain["exit_code"] == 0
    assert len(plain["classes"]) == 2


def test_tasks_of_one_host_in_folders_of_their_own_are_machines_of_their_own(
    tmp_path: Path,
) -> None:
    leave_profile(tmp_path / "n1", "ctl")
    leave_profile(tmp_path / "n2", "ctl")
    assert list(found(tmp_path)) == ["n1/ctl", "n2/ctl"]


def test_a_machine_that_keeps_the_default_is_of_its_class_too(tmp_path: Path) -> None:
    leave_profile(tmp_path, "a")
    folder = tmp_path / "b" / "studies"
    folder.mkdir(parents=True)
    plain = {"command": "sweep", "verdict": "keep_default", "machine": facts("b")}
    (folder / "decode-1.json").write_text(json.dumps(plain))
    whole = document(collect(tmp_path))
    assert [one["machines"] for one in whole["classes"]] == [["a", "b"]]
    assert [one["verdict"] for one in whole["machines"]] == ["profile", "keep_default"]


def test_what_cannot_be_read_is_listed_and_the_rest_shown(tmp_path: Path) -> None:
    directory = leave_profile(tmp_path, "a")
    leave_profile(tmp_path, "b")
    path = directory / "profile.json"
    path.write_text(path.read_text()[:-40])
    (tmp_path / "b" / "bench-x.json").write_text('{"kind": "run", "created": 3}')
    plain = document(collect(tmp_path))
    assert [one["machine"] for one in plain["machines"]] == ["b"]
    assert len(plain["unreadable"]) == 2
    assert "not read:" in text(plain)


def test_control_characters_of_a_host_do_not_reach_the_terminal(tmp_path: Path) -> None:
    leave_profile(tmp_path, "a", kernel="6.1\x1b[2J")
    leave_profile(tmp_path, "b", kernel="6.1")
    assert "\x1b" not in text(document(collect(tmp_path)))


def test_the_document_is_what_its_schema_says(tmp_path: Path) -> None:
    leave_profile(tmp_path, "a")
    leave_profile(tmp_path, "b", driver="570.9")
    leave_pairs(tmp_path, "c", 50.0)
    leave_check(tmp_path, "a", "regressed", "2026-11-29T21:00:00Z", 1.08)
    schema = json.loads((ROOT / "docs" / "schema" / "fleet.json").read_text())
    Draft202012Validator(schema).validate(document(collect(tmp_path)))


def test_the_command_exits_3_and_prints_one_document(tmp_path: Path) -> None:
    leave_profile(tmp_path, "a")
    leave_profile(tmp_path, "b", driver="570.9")
    done = CliRunner().invoke(command, ["show", str(tmp_path), "--json"], standalone_mode=False)
    assert done.return_value == 3
    assert json.loads(done.output)["command"] == "fleet"


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_folder_without_results_is_an_error_with_the_next_step(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CollbenchError) as caught:
        collect(tmp_path / name)
    assert "--out" in caught.value.fix


@settings(deadline=None)  # a busy machine is slow
@given(st.recursive(st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(), st.lists))
def test_any_field_of_a_record_may_be_wrong(
    tmp_path_factory: pytest.TempPathFactory, junk: Any
) -> None:
    root = tmp_path_factory.mktemp("fleet")
    leave_pairs(root, "a", 1.0)
    path = next(root.rglob("*.json"))
    whole = json.loads(path.read_text())
    for name in ("created", "machine", "launches"):
        path.write_text(json.dumps({**whole, name: junk}))
        plain = document(collect(root))
        json.dumps(plain, allow_nan=False)
        text(plain)


def test_the_results_of_this_repository_are_a_fleet_that_can_be_read() -> None:
    fleet = collect(ROOT / "results")
    assert {one.name for one in fleet.machines if one.profile is not None} >= {
        "cpu-vm",
        "2x-nvidia-h200-vm",
    }
    assert [path for path, _ in fleet.unreadable if path.parent.name == "records"] == []


def test_a_file_that_is_not_read_is_named_once(tmp_path: Path) -> None:
    leave_profile(tmp_path, "a")
    (tmp_path / "b").mkdir()
    broken = tmp_path / "b" / "profile.json"
    broken.write_text("{}")
    lines = text(document(collect(tmp_path))).splitlines()
    told = [line for line in lines if line.startswith("not read: ")]
    assert len(told) == 1
    assert told[0].startswith(f"not read: {broken}: not a profile: ")
