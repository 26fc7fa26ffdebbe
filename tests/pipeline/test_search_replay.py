"""The replay benchmark: its definitions, its honesty, and what it refuses."""

import json
import random
from pathlib import Path

import pytest

from benchmarks.landscape import read, space_of
from benchmarks.replay_lab import ReplayLab
from benchmarks.search_replay import main
from collbench.errors import CollbenchError
from collbench.space.axes import key

FOLDER = Path(__file__).parent.parent / "data" / "landscapes"
FILES = [FOLDER / "h200x2_shm.jsonl", FOLDER / "h200x2_shm_confirm.jsonl"]
BEST = key({"NCCL_ALGO": "Ring", "NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "16"})
COPIED = key({"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"})


def test_the_recorded_landscape_is_what_its_readme_says() -> None:
    landscape = read(FILES)
    assert len(landscape.truths) == 165
    assert landscape.sd * 100 == pytest.approx(0.41, abs=0.02)
    assert landscape.regret_pct(BEST) == 0
    assert landscape.regret_pct(key({"NCCL_MIN_NCHANNELS": "16"})) == pytest.approx(0.35, abs=0.02)
    assert not landscape.passes(COPIED)
    assert landscape.regret_pct(COPIED, guarded=True) == landscape.regret_pct(())


def test_the_space_holds_the_recorded_settings_and_no_other() -> None:
    landscape = read(FILES)
    walked = {key(one) for one in space_of(landscape).walk()}
    assert walked == set(landscape.truths)


def test_a_planted_value_is_better_wherever_it_stands_and_nothing_else_is() -> None:
    landscape, planted = read(FILES).planted(5.0, random.Random(3))
    default = landscape.default.step_us
    for name, truth in landscape.truths.items():
        wanted = default * 0.95 if planted in name else default
        assert truth.step_us == pytest.approx(wanted)


def test_draws_scatter_about_the_truth_with_outliers_and_drift() -> None:
    landscape = read(FILES)
    lab = ReplayLab(landscape, 0.004, seed=1)
    ratios = []
    for _ in range(2000):
        step = lab.launch({}, "search").step
        assert step is not None
        ratios.append(step.total_us[0][2] / landscape.default.step_us)
    assert sorted(ratios)[1000] == pytest.approx(1.0, abs=0.01)
    assert 0.03 < sum(r > 1.08 for r in ratios) / 2000 < 0.07
    assert max(ratios) < 1.5
    assert min(ratios) > 0.95


def test_the_document_has_the_agreed_keys(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([*map(str, FILES), "--budget", "25", "--seeds", "4", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    for name in (
        "search_regret_median_pct", "search_regret_p90_pct", "final_regret_median_pct",
        "launches_median", "adopt_pct", "found_pct", "claim_error_p95_pp",
    ):  # fmt: skip
        assert name in found
    assert found["search_regret_median_pct"] < 0.6
    assert found["adopt_pct"] == 100


def test_no_search_launch_beyond_the_budget_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from collbench.search import study

    counts = []

    class Counting(study.Engine):
        def run(self) -> None:
            super().run()
            counts.append(len(self.history.seen))

    monkeypatch.setattr(study, "Engine", Counting)
    for budget in ("10", "25"):
        for strategy in ("auto", "random", "tpe"):
            main([*map(str, FILES), "--budget", budget, "--seeds", "1", "--strategy", strategy])
    assert counts == [10] * 3 + [25] * 3


def write(path: Path, *launches: object) -> Path:
    path.write_text("\n".join(json.dumps(launch) for launch in launches))
    return path


def launch(sizes: tuple[str, ...] = ("65536",), **env: str) -> dict[str, object]:
    return {
        "env": env,
        "res": {
            "ar": {size: [10.0] for size in sizes},
            "ag": {},
            "step_us": [100.0],
            "step_nocomm_us": [60.0],
        },
    }


def test_a_landscape_of_another_space_names_the_field_that_differs(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", launch(), launch(("65536", "131072"), A="1"))
    with pytest.raises(CollbenchError, match=r"x\.jsonl:2: res\.ar / res\.ag.*131072"):
        read([path])


def test_files_of_two_machines_are_refused_by_their_default(tmp_path: Path) -> None:
    one = write(tmp_path / "a.jsonl", launch(), launch(), launch(A="1"))
    slow = launch()
    slow["res"] = {**slow["res"], "step_us": [400.0]}  # type: ignore[dict-item]
    two = write(tmp_path / "b.jsonl", slow, slow)
    with pytest.raises(CollbenchError, match=r"b\.jsonl: res\.step_us of the default is 400, 100"):
        read([one, two])
    assert read([one, one]).sd == 0


def test_one_outlying_default_is_no_noise(tmp_path: Path) -> None:
    slow = launch()
    slow["res"] = {**slow["res"], "step_us": [130.0]}  # type: ignore[dict-item]
    assert read([write(tmp_path / "x.jsonl", *[launch()] * 9, slow, launch(A="1"))]).sd == 0


FAILED = {
    "null": ({"res": None, "error": "timeout after 30 s"}, "hung", "timeout after 30 s"),
    "outcome": (
        {"outcome": "wrong", "reason": "rank 1: 3 elements"},
        "wrong",
        "rank 1: 3 elements",
    ),
    "within": ({"res": {"error": "no algorithm"}}, "died", "no algorithm"),
    "empty": ({"res": {}}, "died", "no result was recorded"),
    "unknown": ({"outcome": "deadline", "res": None}, "hung", "no result was recorded"),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_setting_that_failed_in_the_record_fails_in_the_replay(tmp_path: Path, name: str) -> None:
    plain, outcome, reason = FAILED[name]
    bad = {"env": {"A": "2"}, **plain}
    path = write(tmp_path / "x.jsonl", *[launch()] * 3, launch(A="1"), bad)
    landscape = read([path])
    assert landscape.names == {(), (("A", "1"),), (("A", "2"),)}
    assert space_of(landscape).contains({"A": "2"})
    run = ReplayLab(landscape, 0.004, seed=1).launch({"A": "2"}, "search")
    assert (run.outcome, run.reason) == (outcome, reason)
    assert ReplayLab(landscape, 0.004, seed=1).launch({"A": "1"}, "search").outcome == "ok"


def test_a_setting_that_fails_now_and_then_fails_in_as_many_draws(tmp_path: Path) -> None:
    bad = {"env": {"A": "1"}, "res": None}
    path = write(tmp_path / "x.jsonl", *[launch()] * 3, *[launch(A="1")] * 3, bad)
    lab = ReplayLab(read([path]), 0.004, seed=1)
    runs = [lab.launch({"A": "1"}, "search").outcome for _ in range(400)]
    assert 60 < runs.count("died") < 140


def test_a_landscape_with_failures_is_replayed_to_its_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = launch(A="1")
    good["res"] = {**good["res"], "step_us": [90.0]}  # type: ignore[dict-item]
    bad = [{"env": {"A": "2", **more}, "res": None, "error": "hung"} for more in ({}, {"B": "1"})]
    slow = [launch(B="1"), launch(A="3"), launch(A="3", B="1")]
    path = write(tmp_path / "x.jsonl", *[launch()] * 4, good, *bad, *slow)
    code = main([str(path), "--budget", "20", "--seeds", "3", "--noise", "0.5", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (found["settings_in_space"], found["final_regret_median_pct"]) == (7, 0)
    assert main([str(path), "--budget", "20", "--seeds", "2", "--null", "--noise", "1"]) == 0


def test_a_landscape_without_its_default_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CollbenchError, match=r"env: .*default"):
        read([write(tmp_path / "x.jsonl", launch(A="1"), launch(A="2"))])
    with pytest.raises(CollbenchError, match="nothing but the default"):
        read([write(tmp_path / "y.jsonl", launch(), launch())])


@pytest.mark.parametrize("text", ["{", "[]", '{"env": {}}', '{"env": {}, "res": {"ar": 3}}'])
def test_a_line_that_is_no_launch_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(CollbenchError, match=r"x\.jsonl:1: not a launch"):
        read([path])


def test_a_missing_file_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["/nonexistent.jsonl", "--budget", "25", "--seeds", "1"]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert main([str(FILES[0]), "--budget", "2", "--seeds", "1"]) == 2
    assert main([str(FILES[0]), "--budget", "25", "--seeds", "1", "--strategy", "x"]) == 2
    for wrong in (["--seeds", "0"], ["--jobs", "0"], ["--noise", "-1"], ["--plant", "100"]):
        assert main([str(FILES[0]), "--budget", "25", *wrong]) == 2
        assert f"{wrong[0]} {wrong[1]}: must be" in capsys.readouterr().err
