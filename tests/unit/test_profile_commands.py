"""The subcommands of `collbench profile` do what they say, with one line for a mistake."""

import json
from pathlib import Path

import pytest

from collbench.cli import call
from collbench.profiles import Profile, Scope
from collbench.profiles.store import publish


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLLBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "results"


def make(root: Path, value: str = "16", created: str = "2026-01-01T00:00:00Z") -> str:
    profile = Profile(
        settings={"NCCL_MIN_NCHANNELS": value},
        pinned={"NCCL_NVLS_ENABLE": "0"},
        baseline={"NCCL_CUMEM_ENABLE": "0"},
        created=created,
        scope=Scope(workload="decode", nranks=2, objective="decode"),
        machine={
            "host": "node1",
            "library": "NCCL 2.28.9",
            "gpus": [{"name": "GPU A"}, {"name": "GPU A"}],
        },
        evidence={"ratio": 0.9, "interval": [0.89, 0.91]},
        not_searched=("p2p",),
    )
    return publish(root, "node1", profile).name


def test_show_tells_what_a_profile_is(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = make(root)
    assert call(["profile", "show", name]) == 0
    text = capsys.readouterr().out
    for part in (
        *("NCCL_MIN_NCHANNELS=16", "NCCL_NVLS_ENABLE=0  (pinned)", "10.0 % less time"),
        *("95 %: 9.0 to 11.0", "node1, 2x GPU A", "NCCL 2.28.9", "not searched: p2p"),
    ):
        assert part in text
    assert call(["profile", "show", name, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["id"] == name
    assert document["command"] == "profile show"


def test_list_shows_the_newest_first_with_state_and_broken_ones(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = make(root), make(root, "8", "2026-02-01T00:00:00Z")
    broken = make(root, "4", "2026-03-01T00:00:00Z")
    (root / "node1" / broken / "profile.json").write_text("{")
    call(["profile", "activate", one])
    call(["profile", "activate", two])
    capsys.readouterr()
    assert call(["profile", "list", "--json"]) == 0
    profiles = json.loads(capsys.readouterr().out)["profiles"]
    assert [(p["id"], p["state"]) for p in profiles] == [
        (two, "current"),
        (one, "previous"),
        (broken, "unreadable"),
    ]
    assert call(["profile", "list"]) == 0
    text = capsys.readouterr().out
    assert "10.0 %" in text
    assert "node1, 2x GPU A: NCCL_MIN_NCHANNELS=8" in text


def test_activate_and_rollback_say_what_current_means(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = make(root), make(root, "8")
    for words, meaning in (
        (["activate", one], one),
        (["activate", two], two),
        (["rollback"], one),
        (["rollback"], two),
    ):
        assert call(["profile", *words]) == 0
        assert f"-> node1/{meaning}" in capsys.readouterr().out
        assert (root / "current").resolve().name == meaning


def test_emit_names_the_stable_path_once_a_profile_is_current(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = make(root)
    call(["profile", "emit", name, "--target", "systemd"])
    assert f"EnvironmentFile={root}/node1/{name}/profile.env" in capsys.readouterr().out
    call(["profile", "activate", name])
    capsys.readouterr()
    call(["profile", "emit", name, "--target", "systemd", "--service", "engine"])
    text = capsys.readouterr().out
    assert f"EnvironmentFile={root}/current/profile.env\n" in text
    assert f"collbench verify {root}/current --pid" in text
    assert call(["profile", "emit", "current", "--target", "k8s", "-o", "x.yaml"]) == 0
    assert "kind: ConfigMap" in Path("x.yaml").read_text()


def test_emit_after_activation_elsewhere_names_that_place(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    etc = tmp_path / "etc"
    call(["profile", "activate", make(root), "--at", str(etc)])
    capsys.readouterr()
    call(["profile", "emit", str(etc / "current"), "--target", "slurm"])
    assert f"set -a; . {etc}/current/profile.env; set +a" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["show", "nothing"],
        ["emit", "nothing", "--target", "env"],
        ["activate", "nothing"],
        ["rollback"],
        ["lint", "nothing"],
        ["lint", ".", "--nccl-version", "new"],
        ["emit", "current"],
        ["emit", "current", "--target", "punchcard"],
    ],
)
def test_a_mistake_is_exit_code_2_and_says_the_next_step(
    root: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert call(["profile", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err
    assert "Traceback" not in said.err
