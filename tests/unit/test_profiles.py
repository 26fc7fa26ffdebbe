"""Profiles are published whole, found again, activated and rolled back."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.errors import CollbenchError
from collbench.knobs import registry
from collbench.profiles import Profile, Scope, from_json, machine_slug, sealed, to_json
from collbench.profiles.current import activate, active, rollback
from collbench.profiles.env_file import env_text, parse_env, read_env, representable
from collbench.profiles.store import (
    directories,
    find,
    load,
    publish,
)

MACHINE = {
    "host": "node1",
    "gpus": [
        {"index": 0, "name": "NVIDIA H200", "numa_node": 0},
        {"index": 1, "name": "NVIDIA H200", "numa_node": 1},
    ],
    "driver": "580.1",
    "library": "NCCL 2.28.9",
    "cpu": "a CPU",
}


DOUBTFUL = [
    *("export A=1", "A='1'", "A=1 ", "A=1\r", " A=1", "A", "A=", "A=$B", "A=1;2", "A=a b", "A=~x"),
    *("\ufeffA=1", "B=1\nB=2", "A=#x", "# x\r"),
]


def make(settings: dict[str, str] | None = None, **fields: object) -> Profile:
    return Profile(
        settings=settings or {"NCCL_MIN_NCHANNELS": "16"},
        scope=Scope(workload="decode", nranks=2, sizes=(57344,), objective="decode"),
        machine=MACHINE,
        evidence={"default_us": 4338.0, "winner_us": 4021.0, "ratio": 0.927},
        **fields,  # type: ignore[arg-type]
    )


@pytest.fixture(autouse=True)
def _own_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_a_published_profile_is_found_by_every_name(root: Path) -> None:
    path = publish(root, "node1", make(pinned={"NCCL_NVLS_ENABLE": "0"}))
    assert path == root / "node1" / path.name
    profile_id = path.name
    for reference in (path, path / "profile.env", path / "profile.json", profile_id):
        assert find(reference).resolve() == path.resolve()
    assert find(profile_id[:6]) == path
    loaded = load(profile_id)
    assert loaded.id == profile_id
    assert loaded.settings == {"NCCL_MIN_NCHANNELS": "16", "NCCL_NVLS_ENABLE": "0"}
    assert loaded.profile is not None
    assert loaded.profile.scope.sizes == (57344,)
    assert loaded.profile.gain_pct == pytest.approx(7.3)
    with pytest.raises(CollbenchError, match="no profile 'current'"):
        find("current")


def test_the_env_file_is_what_the_contract_says() -> None:
    profile = sealed(make(pinned={"NCCL_NVLS_ENABLE": "0"}, created="2026-01-02T03:04:05Z"))
    assert env_text(profile) == (
        f"# collbench profile {profile.id}\n"
        "# made with NCCL 2.28.9, 2026-01-02T03:04:05Z\n"
        "NCCL_MIN_NCHANNELS=16\n"
        "# pinned: stood in the environment while measuring, kept as it was\n"
        "NCCL_NVLS_ENABLE=0\n"
        "# markers: which profile this is; they change nothing\n"
        f"COLLBENCH_PROFILE={profile.id}\n"
        "SPT_NOENV=1\n"
    )


def test_the_id_depends_on_what_binds_a_profile_and_on_nothing_else() -> None:
    plain = sealed(make())
    assert sealed(make(created="2020-01-01T00:00:00Z")).id == plain.id
    assert sealed(dataclasses.replace(make(), evidence={"ratio": 0.5})).id == plain.id
    assert sealed(make({"NCCL_MIN_NCHANNELS": "8"})).id != plain.id
    assert sealed(make(baseline={"NCCL_CUMEM_ENABLE": "0"})).id != plain.id
    other = Profile(settings=plain.settings, scope=plain.scope, machine={**MACHINE, "host": "n2"})
    assert sealed(other).id == plain.id
    newer = {**MACHINE, "library": "NCCL 2.30.7"}
    other = Profile(settings=plain.settings, scope=plain.scope, machine=newer)
    assert sealed(other).id != plain.id


def test_a_value_with_a_semicolon_is_refused_with_the_targets_that_can(root: Path) -> None:
    profile = make({"NCCL_ALGO": "allreduce:ring;allgather:ring"})
    with pytest.raises(CollbenchError, match="NCCL_ALGO") as caught:
        env_text(sealed(profile))
    assert "';'" in caught.value.what
    assert "docker" in caught.value.fix
    path = publish(root, "node1", profile)
    assert not (path / "profile.env").exists()
    assert load(path).settings == {"NCCL_ALGO": "allreduce:ring;allgather:ring"}


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "PYTHONPATH", "NCCL_NO_SUCH"])
def test_a_profile_cannot_hold_a_name_outside_the_registry(root: Path, name: str) -> None:
    with pytest.raises(CollbenchError, match=name):
        publish(root, "node1", make({name: "x"}))
    assert not root.exists() or not list(root.rglob("*.json"))
    path = publish(root, "node1", make())
    text = (path / "profile.json").read_text().replace("NCCL_MIN_NCHANNELS", name)
    (path / "profile.json").write_text(text)
    (path / "profile.env").unlink()
    with pytest.raises(CollbenchError, match=f"'{name}' is not in the registry"):
        load(path)


@pytest.mark.parametrize("part", ["settings", "pinned", "baseline"])
def test_no_part_of_a_profile_names_what_a_loader_obeys(part: str) -> None:
    plain = json.loads(to_json(sealed(make())))
    plain[part] = {**plain[part], "LD_PRELOAD": "/tmp/evil.so"}
    with pytest.raises(CollbenchError, match="'LD_PRELOAD' is not in the registry"):
        from_json(json.dumps(plain), where="x.json")


@pytest.mark.parametrize("name", ["../../secret.json", "/etc/passwd", "a/../../b", ""])
def test_a_profile_names_no_record_outside_its_directory(name: str) -> None:
    plain = json.loads(to_json(sealed(make())))
    plain["records"] = ["records/default.json"]
    assert from_json(json.dumps(plain), where="x").records == ("records/default.json",)
    plain["records"] = ["records/default.json", name]
    with pytest.raises(CollbenchError, match=r"records.*inside the profile's directory"):
        from_json(json.dumps(plain), where="x.json")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("evidence", {"ratio": "0.9"}),
        ("evidence", {"interval": [0.9]}),
        ("evidence", {"interval": ["x", 1]}),
        ("machine", {"gpus": ["GPU A"]}),
        ("machine", {"gpus": 2}),
    ],
)
def test_what_a_profile_shows_is_of_the_type_it_is_shown_as(field: str, value: object) -> None:
    plain = {**json.loads(to_json(sealed(make()))), field: value}
    with pytest.raises(CollbenchError, match=rf"x\.json: {field}: "):
        from_json(json.dumps(plain), where="x.json")


def test_a_profile_holds_only_numbers_that_json_has() -> None:
    text = to_json(sealed(make())).replace('"method": 0', '"method": NaN')
    with pytest.raises(CollbenchError, match="NaN is no number"):
        from_json(text, where="x.json")


def test_a_variable_cannot_be_set_and_pinned() -> None:
    with pytest.raises(CollbenchError, match="NCCL_MIN_NCHANNELS"):
        sealed(make(pinned={"NCCL_MIN_NCHANNELS": "16"}))


def test_publishing_again_keeps_the_records_of_before(root: Path) -> None:
    first = publish(root, "node1", make(), files={"runs/a.json": "{}\n"})
    second = publish(root, "node1", make(), files={"runs/b.json": "{}\n"})
    assert first == second
    assert sorted(p.name for p in (first / "runs").iterdir()) == ["a.json", "b.json"]
    assert [p.name for p in (root / "node1").iterdir()] == [first.name]


def test_a_publication_that_fails_leaves_the_old_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = publish(root, "node1", make())
    before = (path / "profile.json").read_text()
    monkeypatch.setattr(
        "collbench.profiles.store.write_atomic",
        lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")),
    )
    with pytest.raises(CollbenchError, match="No space left"):
        publish(root, "node1", make(created="2030-01-01T00:00:00Z"))
    assert (path / "profile.json").read_text() == before
    assert [p.name for p in (root / "node1").iterdir()] == [path.name]


def test_a_record_cannot_be_written_outside(root: Path) -> None:
    with pytest.raises(CollbenchError, match="outside"):
        publish(root, "node1", make(), files={"../../evil": "x"})
    assert not list(root.rglob("evil"))


def test_activate_and_rollback_move_one_link(root: Path) -> None:
    one = publish(root, "node1", make())
    two = publish(root, "node1", make({"NCCL_MIN_NCHANNELS": "8"}))
    assert activate(one.name) == (root / "current", None)
    assert load("current").id == one.name
    link, before = activate(two)
    assert (root / "current").is_symlink()
    assert before == f"node1/{one.name}"
    assert load("current").id == two.name
    assert active(root) == two.resolve()
    assert rollback()[1:] == (f"node1/{one.name}", f"node1/{two.name}")
    assert load("current").id == one.name
    rollback()
    assert load("current").id == two.name
    assert (link / "profile.env").is_file()
    activate(two)
    assert load("previous").id == one.name


def test_activate_refuses_a_place_where_nobody_looks_for_current(
    root: Path, tmp_path: Path
) -> None:
    away = tmp_path / "away" / "machine" / "p"
    shutil.copytree(publish(root, "node1", make()), away)
    with pytest.raises(CollbenchError, match="where `current` is looked for"):
        activate(away)
    assert not (tmp_path / "away" / "current").exists()


def test_activate_at_another_place_copies_the_profile(root: Path, tmp_path: Path) -> None:
    path = publish(root, "node1", make())
    etc = tmp_path / "etc"
    link, _ = activate(path, at=etc)
    shutil.rmtree(root)
    assert read_env(link / "profile.env")["COLLBENCH_PROFILE"] == path.name


def test_what_has_gone_is_not_kept_to_roll_back_to(root: Path) -> None:
    one, two = (publish(root, "node1", make({"NCCL_MIN_NCHANNELS": n})) for n in ("4", "8"))
    activate(one)
    activate(two)
    shutil.rmtree(two)
    three = publish(root, "node1", make({"NCCL_MIN_NCHANNELS": "2"}))
    assert activate(three)[1] == f"node1/{two.name}"
    assert rollback()[1] == f"node1/{one.name}"


def test_rollback_without_a_previous_profile_says_so() -> None:
    with pytest.raises(CollbenchError, match="no previous profile"):
        rollback()


def test_an_edited_env_file_is_not_taken_for_the_profile(root: Path) -> None:
    path = publish(root, "node1", make())
    env = path / "profile.env"
    env.write_text(env.read_text().replace("=16", "=8"))
    with pytest.raises(CollbenchError, match="NCCL_MIN_NCHANNELS"):
        load(path)


def test_a_bare_env_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "mine.env"
    path.write_text("# mine\nNCCL_PROTO=LL\n\nSPT_NOENV=1\n")
    loaded = load(path)
    assert loaded.profile is None
    assert loaded.settings == {"NCCL_PROTO": "LL"}


@pytest.mark.parametrize("line", DOUBTFUL)
def test_a_line_that_readers_take_differently_is_refused(line: str) -> None:
    with pytest.raises(CollbenchError, match=r"line [12]"):
        parse_env(line + "\n", where="x.env")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "../../etc"),
        ("settings", {"NCCL_PROTO": 1}),
        ("settings", {}),
        ("scope", {"nranks": "2"}),
        ("hazards", "ll128"),
        ("evidence", []),
        ("schema", 99),
        ("schema", "1"),
        ("method", True),
        ("kind", "run"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object) -> None:
    plain = json.loads(to_json(sealed(make())))
    plain[field] = value
    with pytest.raises(CollbenchError, match=f"x.json.*{field}"):
        from_json(json.dumps(plain), where="x.json")


def test_fields_of_newer_writers_are_passed_over() -> None:
    plain = json.loads(to_json(sealed(make())))
    plain["new_field"] = 1
    plain["scope"]["new_field"] = 1
    assert from_json(json.dumps(plain), where="x") == sealed(make(created=plain["created"]))


@given(st.text())
def test_no_text_makes_the_reader_stumble(text: str) -> None:
    for read in (from_json, parse_env):
        try:
            read(text, where="x")
        except CollbenchError:
            continue


names = st.lists(st.sampled_from(sorted(registry())), min_size=1, max_size=6, unique=True)
values = st.from_regex(r"\A[A-Za-z0-9_.,:/+@%^-]{1,30}\Z")


@given(st.data())
def test_what_is_written_is_read_back(data: st.DataObject) -> None:
    chosen = [n for n in data.draw(names) if n not in ("COLLBENCH_PROFILE", "SPT_NOENV")]
    settings = {name: data.draw(values) for name in chosen} or {"NCCL_PROTO": "LL"}
    profile = sealed(make(settings))
    assert all(map(representable, settings.values()))
    read = parse_env(env_text(profile), where="x")
    assert read == {**settings, "COLLBENCH_PROFILE": profile.id, "SPT_NOENV": "1"}
    assert from_json(to_json(profile), where="x") == profile


def test_every_profile_is_listed_once(root: Path) -> None:
    one = publish(root, "node1", make())
    two = publish(root, "node2", make({"NCCL_MIN_NCHANNELS": "8"}))
    activate(one)
    assert sorted(p.name for p in directories()) == sorted([one.name, two.name])


def test_a_machine_gets_a_folder_name() -> None:
    assert machine_slug(MACHINE) == "2x-nvidia-h200-node1"
    assert machine_slug({"host": "../x"}) == "cpu-x"
