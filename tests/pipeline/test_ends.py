"""A sweep for decode and prefill: the knee, and the two ends with a confirmation each."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from fake_lab import LARGE, SPACE, WINDOWS, FakeLab
from jsonschema import Draft202012Validator

from collbench.confirm import Recorded, Setup, check
from collbench.confirm.objective import objective_of
from collbench.errors import CollbenchError
from collbench.job import Case, CaseTimes, Job, Run, Settings, Step, StepCall
from collbench.lab import Purpose
from collbench.machine import Fingerprint
from collbench.profiles.store import read_profile
from collbench.search.budget import Budget, plan_launches, search_seconds
from collbench.search.ends import SERVES
from collbench.search.options import Options
from collbench.search.protocol import run
from collbench.search.result import StudyResult
from collbench.space.axes import key
from collbench.sweep.publish import Context, publish_all

SMALL = Case(collective="all_reduce", size_bytes=65536, dtype="bfloat16", mode="graph")
Effects = Mapping[tuple[str, str], float]
CHANNELS = ("NCCL_MIN_NCHANNELS", "16")
DECODE: Effects = {CHANNELS: -0.08, ("NCCL_PROTO", "LL"): -0.12, ("NCCL_PROTO", "Simple"): 0.3}
PREFILL: Effects = {CHANNELS: -0.10, ("NCCL_PROTO", "LL"): 0.9, ("NCCL_PROTO", "Simple"): -0.15}
KNEE = {"NCCL_MIN_NCHANNELS": "16"}
DECODE_END = {**KNEE, "NCCL_PROTO": "LL"}
PREFILL_END = {**KNEE, "NCCL_PROTO": "Simple"}


class TwoSides(FakeLab):
    """16 channels help both; LL helps decode and Simple prefill, at the cost of the other."""

    def __init__(self, decode: Effects = DECODE, prefill: Effects = PREFILL, **given: Any) -> None:
        super().__init__(effects=decode, **given)
        self.prefill = prefill

    def launch(self, settings: Settings, purpose: Purpose, *, env_file: Path | None = None) -> Run:
        done = super().launch(settings, purpose, env_file=env_file)
        if done.outcome != "ok":
            return done
        assert done.step is not None
        name = key(settings)
        factor = (
            done.step.total_us[0][1] / 4000 / math.exp(sum(self.effects.get(i, 0) for i in name))
        )
        large = 300 * factor * math.exp(sum(self.prefill.get(i, 0) for i in name))
        small = 15 * factor * math.exp(sum(self.effects.get(i, 0) for i in name))
        cases = tuple(
            CaseTimes(case=case, times_us=[[us * w for w in WINDOWS]] * 2)
            for case, us in ((LARGE, large), (SMALL, small))
        )
        return Run(
            job_id="x",
            settings=dict(settings),
            outcome="ok",
            cases=cases,
            step=done.step,
            functions=done.functions,
        )


def study(lab: FakeLab, storage: Any = None, **given: Any) -> StudyResult:
    fixed: dict[str, Any] = {"backend": "nccl", "beside": False, "objective": "pareto"}
    options = Options(**(fixed | {"budget": Budget(launches=40)} | given))
    return run(lab, SPACE, options, storage or optuna.storages.InMemoryStorage())


@pytest.fixture(scope="module")
def both() -> tuple[FakeLab, StudyResult]:
    lab = TwoSides()
    return lab, study(lab)


def test_the_knee_and_both_ends_are_confirmed_each_on_its_own_objective(
    both: tuple[FakeLab, StudyResult],
) -> None:
    _, result = both
    assert (result.objective, result.settings) == ("pareto", KNEE)
    decode, prefill = result.ends
    assert (decode.objective, decode.settings) == ("decode", DECODE_END)
    assert (prefill.objective, prefill.settings) == ("prefill", PREFILL_END)
    assert decode.ratio == pytest.approx(math.exp(-0.20), abs=0.01)
    assert prefill.ratio == pytest.approx(math.exp(-0.25), abs=0.01)
    assert decode.default_us == pytest.approx(4000, rel=0.03)
    assert prefill.default_us == pytest.approx(300, rel=0.03)


def test_what_an_end_gives_up_is_measured_and_said(both: tuple[FakeLab, StudyResult]) -> None:
    decode, prefill = both[1].ends
    slower = f"{math.exp(0.8):.1f}"
    assert f"only decodes: calls from 1 MiB up take {slower}" in decode.must_hold[0]
    assert "only prefills: its decode step takes 1.2" in prefill.must_hold[0]
    assert both[1].must_hold == ()


def test_an_end_has_confirming_launches_and_a_proof_of_its_own(
    both: tuple[FakeLab, StudyResult],
) -> None:
    lab, result = both
    phases = [phase for phase, _ in result.runs]
    for prefix in ("", "decode ", "prefill "):
        assert phases.count(f"{prefix}confirm") >= 28
        assert phases.count(f"{prefix}proof") == 1
    assert result.trials == len(lab.asked) == len(result.runs)
    confirmed = [key(r.settings) for phase, r in result.runs if phase == "decode confirm"]
    assert set(confirmed) == {(), key(DECODE_END)}


def test_an_end_that_the_knee_serves_costs_no_launch_of_its_own() -> None:
    lab = TwoSides(decode={CHANNELS: -0.08}, prefill={CHANNELS: -0.10})
    result = study(lab)
    assert result.settings == KNEE
    assert [(e.settings, e.reasons) for e in result.ends] == [({}, (SERVES,))] * 2
    assert not any(phase.startswith(("decode ", "prefill ")) for phase, _ in result.runs)


def test_an_end_can_be_worth_it_where_the_knee_is_the_default() -> None:
    lab = TwoSides(
        decode={("NCCL_PROTO", "LL"): -0.12, ("NCCL_PROTO", "Simple"): 0.2},
        prefill={("NCCL_PROTO", "LL"): 0.9, ("NCCL_PROTO", "Simple"): 0.1},
    )
    result = study(lab)
    assert result.verdict == "keep_default"
    decode, prefill = result.ends
    assert decode.settings == {"NCCL_PROTO": "LL"}
    assert prefill.verdict == "keep_default"


def test_an_end_that_slows_its_own_side_is_not_adopted() -> None:
    """LL is faster in the step and ruinous at 64 KiB, which a decoding server sends as well."""

    class Ruinous(TwoSides):
        def launch(self, settings: Settings, *args: Any, **given: Any) -> Run:
            done = super().launch(settings, *args, **given)
            confirming = args[0] == "confirm"  # nothing before has seen it
            slow = 1.3 if settings.get("NCCL_PROTO") == "LL" and confirming else 1.0
            for one in done.cases:
                if one.case == SMALL:
                    one.times_us[:] = [[us * slow for us in rank] for rank in one.times_us]
            return done

    decode, _ = study(Ruinous()).ends
    assert decode.verdict == "keep_default"
    assert decode.settings == {}
    assert decode.reasons[0].startswith("all_reduce/65536/bfloat16/graph is ")
    assert "slower" in decode.reasons[0]


def test_an_end_that_hangs_while_it_is_confirmed_is_not_adopted() -> None:
    def hang(settings: Settings, count: int) -> tuple[str, str] | None:
        late = dict(settings) == DECODE_END and count > 15
        return ("hung", "deadline passed") if late else None

    result = study(TwoSides(outcome=hang))
    decode, prefill = result.ends
    assert (result.settings, decode.settings, prefill.settings) == (KNEE, {}, PREFILL_END)
    assert "hung" in decode.reasons[0]


def test_a_function_that_breaks_stops_an_end() -> None:
    def functions(settings: Settings) -> Mapping[str, str]:
        bad = settings.get("NCCL_PROTO") == "LL"
        return {"reduce/int64/4": "wrong data" if bad else "ok"}

    decode, prefill = study(TwoSides(functions=functions)).ends
    assert decode.settings == {}
    assert prefill.settings == PREFILL_END


@pytest.mark.slow
def test_a_sweep_killed_in_an_end_goes_on_there(tmp_path: Path) -> None:
    def busy(settings: Settings, count: int) -> tuple[str, str] | None:
        if dict(settings) == PREFILL_END and count > 12:
            raise CollbenchError("GPU 0 stays busy", fix="wait, then --resume", code=1)
        return None

    url = f"sqlite:///{tmp_path}/study.db"
    first = TwoSides(outcome=busy)
    with pytest.raises(CollbenchError, match="stays busy"):
        study(first, url)
    again = TwoSides(seed=1)
    result = study(again, url, resume=True)
    assert [e.settings for e in result.ends] == [DECODE_END, PREFILL_END]
    assert result.trials_reused == len(first.asked) - 1
    assert result.trials == result.trials_reused + len(again.asked)


def test_hazards_are_not_searched_for_the_ends_again() -> None:
    result = study(TwoSides(), hazards=("graph-mixing",))
    assert result.ends == ()


def test_a_time_budget_keeps_half_of_the_search_and_leaves_the_rest_to_the_ends() -> None:
    """1000 s of 1 s a launch and 86 launches a confirmation: two more for the ends."""
    budget = Budget(launches=None, seconds=1000.0)
    assert plan_launches(budget, 1.0, 0.0, 14, beside=False) == 914
    assert plan_launches(budget, 1.0, 0.0, 14, beside=False, ends=2) == 914 - 2 * 86
    tight = Budget(launches=None, seconds=186.0)
    assert plan_launches(tight, 1.0, 0.0, 14, beside=False, ends=2) == 50
    assert search_seconds(tight, 1.0, 0.0, 14, ends=2) == 50


def test_an_end_that_no_time_is_left_for_is_said_and_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("collbench.search.ends._in_time", lambda finish: False)
    result = study(TwoSides())
    assert result.settings == KNEE
    assert all("time budget" in end.reasons[0] for end in result.ends)
    assert not any(phase.startswith(("decode ", "prefill ")) for phase, _ in result.runs)


CONTEXT = Context(
    spec="decode",
    backend="nccl",
    nranks=2,
    step=Step(
        name="step",
        calls=(StepCall(collective="all_reduce", size_bytes=57344, dtype="bfloat16", count=122),),
    ),
    machine=Fingerprint(host="node", library="NCCL 2.28.9"),
    baseline={},
    pinned={},
    like="none",
    command=("collbench", "sweep", "decode", "--objective", "pareto"),
    job=Job(job_id="0", backend="nccl", nranks=2),
)


def test_every_profile_is_published_and_the_document_says_for_which_server(
    both: tuple[FakeLab, StudyResult], tmp_path: Path
) -> None:
    (whole,) = publish_all(both[1], CONTEXT, tmp_path, warnings=[])
    schema = Path(__file__).parent.parent.parent / "docs" / "schema" / "sweep.json"
    Draft202012Validator(json.loads(schema.read_text())).validate(json.loads(json.dumps(whole)))
    listed = {one["server"]: one for one in whole["profiles"]}
    assert list(listed) == ["both", "decode", "prefill"]
    assert [one["objective"] for one in listed.values()] == ["pareto", "decode", "prefill"]
    assert whole["profile"] == listed["both"]["profile"]
    assert listed["decode"]["settings"] == DECODE_END
    assert listed["decode"]["other_ratio"] == pytest.approx(math.exp(0.8), rel=0.02)
    profiles = {name: read_profile(Path(one["profile"])) for name, one in listed.items()}
    assert len({p.id for p in profiles.values()}) == 3
    assert profiles["prefill"].scope.objective == "prefill"
    assert profiles["prefill"].conditions["must_hold"] == listed["prefill"]["must_hold"]
    for name, one in listed.items():
        low, high = one["interval"]
        assert low < one["ratio"] < high < 1
        arms = [Path(one["profile"], "records", f"{arm}.json") for arm in ("default", "profile")]
        runs = [json.loads(arm.read_text())["launches"] for arm in arms]
        assert len(runs[0]) == len(runs[1]) >= 14, name
        assert {key(r["settings"]) for r in runs[1]} == {key(one["settings"])}


def test_an_end_that_is_not_emitted_is_said_with_its_reason(tmp_path: Path) -> None:
    result = study(TwoSides(decode={CHANNELS: -0.08}, prefill={CHANNELS: -0.10}))
    (whole,) = publish_all(result, CONTEXT, tmp_path, warnings=[])
    assert [one["server"] for one in whole["profiles"]] == ["both"]
    assert f"no profile for servers that only decode: {SERVES}" in whole["notes"]
    assert len(list(tmp_path.glob("*/*/profile.json"))) == 1


def test_every_profile_is_checked_later_on_its_own_objective(
    both: tuple[FakeLab, StudyResult],
) -> None:
    knee, (decode, prefill) = both[1], both[1].ends
    for result in (knee, decode, prefill):
        assert result.ratio is not None
        assert result.default_us is not None
        assert result.winner_us is not None
        recorded = Recorded(
            settings=result.settings,
            ratio=result.ratio,
            default_us=result.default_us,
            winner_us=result.winner_us,
            sd=0.004,
        )
        setup = Setup(
            lab=TwoSides(seed=3), backend="nccl", objective=objective_of(result.objective)
        )
        found = check(setup, recorded, beside=False)
        assert found.verdict == "as_recorded"
        assert found.now.ratio == pytest.approx(result.ratio, abs=0.01)
    assert objective_of("") == "decode"  # a record without one
