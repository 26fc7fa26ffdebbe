"""Whole studies on a made-up lab: what is adopted, what is turned away, and what is said."""

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from fake_lab import EFFECTS, SPACE, FakeLab

from collbench.errors import CollbenchError
from collbench.job import Run, Settings
from collbench.lab import StuckError
from collbench.search import account
from collbench.search.budget import (
    Budget,
    parse_budget,
    plan_launches,
    rest_of_sweep,
    search_seconds,
)
from collbench.search.events import Silent
from collbench.search.options import Options
from collbench.search.protocol import run
from collbench.search.result import StudyResult
from collbench.space.axes import Space, key


def study(lab: FakeLab, space: Space = SPACE, storage: Any = None, **given: Any) -> StudyResult:
    options = Options(**{"backend": "nccl", "beside": False, "budget": Budget(launches=30)} | given)
    return run(lab, space, options, storage or optuna.storages.InMemoryStorage())


def with_value(name: str, value: str) -> Any:
    return lambda settings: settings.get(name) == value


@pytest.mark.parametrize("strategy", ["auto", "exhaustive", "coordinate", "tpe", "random"])
def test_every_strategy_ends_with_the_setting_that_matters(strategy: str) -> None:
    result = study(FakeLab(), strategy=strategy, budget=Budget(launches=60))
    assert result.verdict == "profile"
    assert result.settings == {"NCCL_MIN_NCHANNELS": "16"}
    assert result.ratio == pytest.approx(math.exp(-0.08), abs=0.006)
    assert result.interval is not None
    assert result.interval[0] < math.exp(-0.08) < result.interval[1]


def test_nothing_faster_keeps_the_default_and_says_what_could_be_seen() -> None:
    result = study(FakeLab(effects={}, sd=0.02))
    assert result.verdict == "keep_default"
    assert result.settings == {}
    assert result.reasons
    assert result.visible_pct is not None
    assert result.visible_pct >= 2


@pytest.mark.parametrize("objective", ["prefill", "pareto"])
def test_large_messages_are_tuned_however_little_the_step_communicates(objective: str) -> None:
    class Large(FakeLab):
        def launch(self, settings: Settings, *args: Any, **given: Any) -> Any:
            run = super().launch(settings, *args, **given)
            better = 0.8 if settings.get("NCCL_MIN_NCHANNELS") == "16" else 1.0
            cases = tuple(
                replace(c, times_us=[[t * better for t in r] for r in c.times_us])
                for c in run.cases
            )
            return replace(run, cases=cases)

    result = study(Large(effects={}, exposed=40.0), objective=objective)
    assert result.settings == {"NCCL_MIN_NCHANNELS": "16"}


def test_a_copied_protocol_that_slows_large_messages_is_not_adopted() -> None:
    effects = {("NCCL_PROTO", "LL"): -0.2}
    result = study(FakeLab(effects=effects))
    assert result.verdict == "keep_default"
    seen = next(s for s in result.searched if s.settings == {"NCCL_PROTO": "LL"})
    assert seen.guard > 0


def test_the_step_with_hardly_any_communication_is_not_tuned() -> None:
    lab = FakeLab(exposed=40.0)
    result = study(lab)
    assert result.verdict == "keep_default"
    assert "nothing worth tuning" in result.reasons[0]
    assert len(lab.asked) == 16


def test_settings_that_change_nothing_are_dropped() -> None:
    effects = {("NCCL_ALGO", "Ring"): -0.001, **EFFECTS}
    seeds = (key({"NCCL_MIN_NCHANNELS": "16", "NCCL_ALGO": "Ring", "NCCL_NTHREADS": "256"}),)
    result = study(FakeLab(effects=effects), replace(SPACE, seeds=seeds))
    assert result.settings == {"NCCL_MIN_NCHANNELS": "16"}


def test_a_setting_that_matters_is_kept_by_the_ablation() -> None:
    effects = {("NCCL_ALGO", "Ring"): -0.05, **EFFECTS}
    result = study(FakeLab(effects=effects))
    assert result.settings == {"NCCL_MIN_NCHANNELS": "16", "NCCL_ALGO": "Ring"}
    kept = [r for r in result.ablation if r.kept]
    assert {tuple(r.dropped) for r in kept} == {("NCCL_ALGO",), ("NCCL_MIN_NCHANNELS",)}


@pytest.mark.parametrize("outcome", ["hung", "died", "wrong", "refused", "unsupported"])
def test_a_bad_value_is_an_outcome_with_its_reason(outcome: str) -> None:
    def bad(settings: Settings, count: int) -> tuple[str, str] | None:
        return (outcome, "rank 1 said so") if settings.get("NCCL_PROTO") == "Simple" else None

    result = study(FakeLab(outcome=bad))
    assert result.verdict == "profile"
    assert result.outcomes[outcome] >= 1
    seen = next(s for s in result.searched if s.settings == {"NCCL_PROTO": "Simple"})
    assert (seen.outcome, seen.reason, seen.ratio) == (outcome, "rank 1 said so", None)


def test_two_hangs_condemn_a_value_and_only_that_value() -> None:
    def hang(settings: Settings, count: int) -> tuple[str, str] | None:
        return ("hung", "deadline") if settings.get("NCCL_PROTO") == "Simple" else None

    lab = FakeLab(outcome=hang)
    result = study(lab, strategy="random", budget=Budget(launches=80))
    hung = [name for purpose, name, _ in lab.asked if ("NCCL_PROTO", "Simple") in name]
    assert len(hung) == 2
    assert result.outcomes["hung"] == 2
    assert result.settings == {"NCCL_MIN_NCHANNELS": "16"}


@pytest.mark.parametrize("outcome", ["refused", "hung", "wrong", "died"])
def test_invalid_candidates_are_told_as_constraint_violations(outcome: str) -> None:
    def bad(settings: Settings, count: int) -> tuple[str, str] | None:
        return (outcome, "no algorithm") if settings.get("NCCL_NTHREADS") == "128" else None

    storage = optuna.storages.InMemoryStorage()
    study(FakeLab(outcome=bad), storage=storage)
    trials = optuna.load_study(study_name="sweep", storage=storage).trials
    told = [t for t in trials if t.params.get("threads") == "128"]
    assert told
    assert all(t.state == optuna.trial.TrialState.COMPLETE for t in trials)
    assert all(t.constraints["outcome"] > 0 for t in told)
    assert told[0].user_attrs["reason"] == "no algorithm"
    assert trials[0].params == dict.fromkeys(trials[0].params, "unset")


def test_a_function_that_breaks_stops_the_candidate_at_the_shortlist() -> None:
    def functions(settings: Settings) -> Mapping[str, str]:
        bad = settings.get("NCCL_MIN_NCHANNELS") == "16"
        return {"broadcast/int64/4": "wrong data" if bad else "ok"}

    result = study(FakeLab(functions=functions))
    assert result.settings == {"NCCL_MIN_NCHANNELS": "32"}
    short = next(s for s in result.shortlist if s.settings == {"NCCL_MIN_NCHANNELS": "16"})
    assert short.reason == "broadcast/int64/4: wrong data"


def test_a_winner_that_hangs_while_it_is_confirmed_is_not_adopted() -> None:
    def hang_late(settings: Settings, count: int) -> tuple[str, str] | None:
        late = dict(settings) == {"NCCL_MIN_NCHANNELS": "16"} and count > 15
        return ("hung", "deadline passed") if late else None

    result = study(FakeLab(outcome=hang_late))
    assert result.settings != {"NCCL_MIN_NCHANNELS": "16"}
    assert result.outcomes["hung"] == 1


def test_the_default_that_cannot_be_measured_ends_the_study_with_what_to_do() -> None:
    lab = FakeLab(outcome=lambda settings, count: None if settings or count < 20 else ("died", "x"))
    with pytest.raises(CollbenchError, match=r"twice died|any more: died") as caught:
        study(lab)
    assert caught.value.fix


@pytest.mark.slow
def test_a_lab_that_gives_up_stops_the_study_and_keeps_what_was_measured(tmp_path: Path) -> None:
    def busy(settings: Settings, count: int) -> tuple[str, str] | None:
        if settings.get("NCCL_MIN_NCHANNELS") == "32":
            raise CollbenchError("GPU 0 stays busy", fix="wait, then --resume", code=1)
        return None

    url = f"sqlite:///{tmp_path}/study.db"
    with pytest.raises(CollbenchError, match="stays busy"):
        study(FakeLab(outcome=busy), storage=url)
    result = study(FakeLab(), storage=url, resume=True)
    assert result.trials_reused > 16
    assert result.verdict == "profile"


def test_what_left_the_gpus_busy_is_not_launched_again_on_resume(tmp_path: Path) -> None:
    class Stuck(FakeLab):
        def launch(self, settings: Settings, *args: Any, **given: Any) -> Any:
            if settings.get("NCCL_MIN_NCHANNELS") == "32":
                run = Run(job_id="x", settings=dict(settings), outcome="hung", reason="deadline")
                self.asked.append(("search", key(settings), False))
                raise StuckError("GPU 0 is still busy", fix="reset it, then --resume", run=run)
            return super().launch(settings, *args, **given)

    url = f"sqlite:///{tmp_path}/study.db"
    first = Stuck()
    with pytest.raises(StuckError, match="still busy") as caught:
        study(first, storage=url)
    assert caught.value.code == 1
    assert "--resume" in caught.value.fix
    again = FakeLab()
    result = study(again, storage=url, resume=True)
    assert first.asked[-1][1] not in [name for _, name, _ in again.asked]
    assert result.outcomes["hung"] == 1
    assert next(s for s in result.searched if key(s.settings) == first.asked[-1][1]).reason


@pytest.mark.slow
def test_a_study_that_is_done_is_answered_from_the_storage_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    first = study(FakeLab(), storage=url)
    again = FakeLab()
    second = study(again, storage=url, resume=True)
    assert again.asked == []
    assert second.trials_reused == second.trials == first.trials
    assert (second.ratio, second.settings) == (first.ratio, first.settings)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"seed": 1}, "seed"),
        ({"spec": {"sweep.workload": {"model": "b"}}}, 'sweep.workload.model: "a", now "b"'),
        ({"spec": {}}, "sweep.workload: .*, now not set"),
    ],
)
def test_a_resumed_study_whose_spec_changed_names_the_field(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    given = {"spec": {"sweep.workload": {"model": "a"}}}
    study(FakeLab(exposed=40.0), storage=url, **given)
    with pytest.raises(CollbenchError, match=f"another {field}") as caught:
        study(FakeLab(), storage=url, resume=True, **(given | change))
    assert "--resume" in caught.value.fix


def test_a_study_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study(FakeLab(exposed=40.0), storage=url)
    with pytest.raises(CollbenchError, match="there already"):
        study(FakeLab(), storage=url)


def test_passwords_of_storages_stay_out_of_errors() -> None:
    with pytest.raises(CollbenchError) as caught:
        study(FakeLab(), storage="postgresql+nosuch://me:hunter2@db/x")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("given", [{"strategy": "magic"}, {"objective": "speed"}])
def test_unknown_names_are_refused_with_the_choices(given: dict[str, str]) -> None:
    with pytest.raises(CollbenchError, match="unknown") as caught:
        study(FakeLab(), **given)
    assert "choose one of" in caught.value.fix


def test_budgets_too_small_to_confirm_are_refused() -> None:
    with pytest.raises(CollbenchError, match="too few"):
        parse_budget("3")
    with pytest.raises(CollbenchError, match="too small to confirm"):
        plan_launches(parse_budget("1m"), 1.2, 20.0, 14, beside=False)


def test_a_time_budget_leaves_time_to_confirm() -> None:
    """300 s of 1.2 s a launch, 20 gone: 233 launches, of which the rest of the sweep needs 86."""
    budget = parse_budget("5m")
    launches = plan_launches(budget, 1.2, 20.0, 14, beside=False)
    assert launches == int(280 / 1.2) - rest_of_sweep(14)
    assert search_seconds(budget, 1.2, 20.0, 14) == pytest.approx(280 - 1.2 * rest_of_sweep(14))
    assert search_seconds(Budget(launches=9), 1.2, 20.0, 14) == math.inf


def test_a_search_whose_time_is_over_goes_on_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collbench.search.study.search_seconds", lambda *given, **named: 0.0)
    lab = FakeLab()
    result = study(lab)
    assert result.verdict == "keep_default"
    assert [name for _, name, _ in lab.asked if name] == []


def test_candidates_beside_a_default_of_their_own_survive_a_jumping_host() -> None:
    class Jumping(FakeLab):
        def launch(self, settings: Settings, *args: Any, **given: Any) -> Any:
            slow = (len(self.asked) // 25) % 2
            self.sd = 0.005
            run = super().launch(settings, *args, **given)
            assert run.step is not None
            scaled = [[v * (1 + slow) for v in rank] for rank in run.step.total_us]
            return replace(run, step=replace(run.step, total_us=scaled, nocomm_us=[]), cases=())

    result = study(Jumping(), backend="mpi", beside=True, budget=Budget(launches=60))
    assert result.verdict == "profile"
    assert result.settings == {"NCCL_MIN_NCHANNELS": "16"}
    assert result.winner_exposed_us is None


def test_two_launches_an_arm_start_by_exec_from_the_drafted_file(tmp_path: Path) -> None:
    drafted: list[Settings] = []

    def draft(settings: Settings) -> Path:
        drafted.append(dict(settings))
        return tmp_path / "draft.env"

    lab = FakeLab()
    options = Options(backend="nccl", beside=False, budget=Budget(launches=30))
    run(lab, SPACE, options, optuna.storages.InMemoryStorage(), draft=draft)
    by_exec = [name for _, name, executed in lab.asked if executed]
    winner = key({"NCCL_MIN_NCHANNELS": "16"})
    assert sorted(by_exec) == sorted([(), (), winner, winner])
    assert len(drafted) == 4
    assert lab.asked[-1][0] == "proof"


def test_settings_that_do_not_arrive_by_exec_are_not_adopted(tmp_path: Path) -> None:
    class Deaf(FakeLab):
        def launch(self, settings: Settings, purpose: Any, *, env_file: Path | None = None) -> Any:
            return super().launch({} if env_file else settings, purpose, env_file=env_file)

    options = Options(backend="nccl", beside=False, budget=Budget(launches=30))
    result = run(
        Deaf(), SPACE, options, optuna.storages.InMemoryStorage(), draft=lambda s: tmp_path / "x"
    )
    assert result.verdict == "keep_default"
    assert "drafted env file" in result.reasons[0]


def test_the_confirmation_sees_new_launches_only() -> None:
    lab = FakeLab()
    result = study(lab)
    confirming = [name for purpose, name, _ in lab.asked if purpose == "confirm"]
    assert result.confirmation is not None
    assert len(confirming) == 2 * result.confirmation.pairs == 28


CONFLICT = {("NCCL_PROTO", "LL"): -0.15, ("NCCL_MIN_NCHANNELS", "16"): -0.06}


def test_under_prefill_the_large_messages_decide_and_the_step_is_guarded() -> None:
    result = study(FakeLab(effects=CONFLICT), objective="prefill")
    assert result.verdict == "keep_default"
    searched = {key(s.settings): s.ratio for s in result.searched}
    assert searched[key({"NCCL_PROTO": "LL"})] == pytest.approx(math.exp(0.9), rel=0.05)


def test_pareto_keeps_the_front_and_recommends_its_knee() -> None:
    class Both(FakeLab):
        """16 channels help both, LL helps decode alone at the cost of prefill."""

        def launch(self, settings: Settings, *args: Any, **given: Any) -> Any:
            run = super().launch(settings, *args, **given)
            better = 0.93 if settings.get("NCCL_MIN_NCHANNELS") == "16" else 1.0
            cases = tuple(
                replace(c, times_us=[[t * better for t in r] for r in c.times_us])
                for c in run.cases
            )
            return replace(run, cases=cases)

    result = study(Both(effects=CONFLICT), objective="pareto", budget=Budget(launches=40))
    assert result.settings == {"NCCL_MIN_NCHANNELS": "16"}
    front = {key(p.settings): p for p in result.front}
    assert front[key({"NCCL_MIN_NCHANNELS": "16"})].knee
    decode_only = [p for p in result.front if p.settings.get("NCCL_PROTO") == "LL"]
    assert decode_only
    assert all(p.decode_ratio < 0.9 and p.prefill_ratio > 1.5 for p in decode_only)
    assert sum(p.knee for p in result.front) == 1


def test_the_time_left_is_told_and_ends_near_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.monotonic()]

    class OneSecondEach(FakeLab):
        def launch(self, *args: Any, **given: Any) -> Run:
            now[0] += 1.0
            return super().launch(*args, **given)

    class Listener(Silent):
        left: list[float | None]

        def trial(self, *args: Any, left_s: float | None = None, **given: Any) -> None:
            self.left.append(left_s)

    monkeypatch.setattr(account, "time", SimpleNamespace(monotonic=lambda: now[0]))
    listener = Listener()
    listener.left = []
    options = Options(backend="nccl", beside=False, budget=Budget(launches=20))
    run(OneSecondEach(), SPACE, options, optuna.storages.InMemoryStorage(), listener)
    assert listener.left[:16] == [None] * 16
    known = [left for left in listener.left if left is not None]
    assert len(known) > 40
    assert known[0] - known[-1] == pytest.approx(len(known) - 1, abs=1.0)
