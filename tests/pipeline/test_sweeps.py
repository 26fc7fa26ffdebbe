"""A sweep from its file: options, the safe study, and hazards in a second one on top."""

import math
from typing import Any

import optuna
import pytest
from fake_lab import FakeLab

from collbench.errors import CollbenchError
from collbench.search.storage import refuse_difference
from collbench.search.sweeps import options, run_sweep
from collbench.space import load_spec, plan
from collbench.space.axes import key

MIXING = ("NCCL_GRAPH_MIXING_SUPPORT", "0")
EFFECTS = {("NCCL_MIN_NCHANNELS", "16"): -0.08, MIXING: -0.1, ("NCCL_PROTO", "Simple"): 0.4}


def sweep(lab: FakeLab, *allow: str, **given: Any) -> Any:
    spec = load_spec("decode")
    built = plan(spec, version=(2, 28, 9), allow=allow)
    command = ("collbench", "sweep", "decode", *(w for a in allow for w in ("--allow", a)))
    asked = options(spec, built, nranks=2, allow=allow, command=command, **given)
    return run_sweep(lab, built, asked, optuna.storages.InMemoryStorage())


def test_without_allow_no_hazard_is_launched_and_the_command_that_would_is_said() -> None:
    lab = FakeLab(effects=EFFECTS)
    result = sweep(lab)
    assert result.settings == {"NCCL_MIN_NCHANNELS": "16"}
    assert not any(MIXING in name for _, name, _ in lab.asked)
    assert result.not_searched == ["graph-mixing", "p2p"]
    assert result.not_searched_command == (
        "collbench sweep decode --allow graph-mixing --allow p2p"
    )
    assert result.hazard is None


def test_an_allowed_hazard_is_a_second_result_on_top_of_the_safe_one() -> None:
    lab = FakeLab(effects=EFFECTS)
    result = sweep(lab, "graph-mixing")
    assert result.settings == {"NCCL_MIN_NCHANNELS": "16"}
    assert result.hazards == ()
    risky = result.hazard
    assert risky.settings == {"NCCL_MIN_NCHANNELS": "16", "NCCL_GRAPH_MIXING_SUPPORT": "0"}
    assert risky.reference == {"NCCL_MIN_NCHANNELS": "16"}
    assert risky.ratio == pytest.approx(math.exp(-0.1), abs=0.01)
    assert risky.hazards == ("graph-mixing",)
    assert "never overlap" in risky.must_hold[0]
    assert result.trials == len(lab.asked)
    first = next(i for i, (_, name, _) in enumerate(lab.asked) if MIXING in name)
    proofs = [i for i, (purpose, _, _) in enumerate(lab.asked) if purpose == "proof"]
    assert proofs[0] < first  # the safe study is over before a hazard is launched


def test_a_hazard_that_gains_nothing_leaves_the_safe_profile_alone() -> None:
    result = sweep(FakeLab(effects={("NCCL_MIN_NCHANNELS", "16"): -0.08}), "graph-mixing")
    assert result.settings == {"NCCL_MIN_NCHANNELS": "16"}
    assert result.hazard.verdict == "keep_default"


def test_only_what_the_profile_holds_has_to_hold() -> None:
    risky = sweep(FakeLab(effects=EFFECTS), "graph-mixing", "p2p").hazard
    assert risky.settings["NCCL_GRAPH_MIXING_SUPPORT"] == "0"
    assert risky.hazards == ("graph-mixing",)
    assert len(risky.must_hold) == 1
    kept = sweep(FakeLab(effects={}), "p2p").hazard
    assert (kept.hazards, kept.must_hold) == ((), ())


def test_an_unknown_hazard_is_refused_with_the_choices() -> None:
    with pytest.raises(CollbenchError, match="no hazard") as caught:
        plan(load_spec("decode"), allow=["gravity"])
    assert "graph-mixing" in caught.value.fix


def test_the_last_profile_of_the_machine_is_tried_first() -> None:
    lab = FakeLab(effects=EFFECTS)
    last = {"NCCL_MIN_NCHANNELS": "32", "NCCL_MAX_NCHANNELS": "32", "NCCL_ALGO": "Ring"}
    sweep(lab, last_profiles=[last])
    assert next(name for _, name, _ in lab.asked if name) == key(last)


def test_a_hazardous_last_profile_does_not_hide_the_safe_one() -> None:
    lab = FakeLab(effects=EFFECTS)
    safe = {"NCCL_MIN_NCHANNELS": "32", "NCCL_MAX_NCHANNELS": "32", "NCCL_ALGO": "Ring"}
    sweep(lab, last_profiles=[{**safe, MIXING[0]: MIXING[1]}, {}, safe, safe])
    assert next(name for _, name, _ in lab.asked if name) == key(safe)


def test_a_sweep_goes_on_under_what_it_was_started_under_only() -> None:
    spec = load_spec("decode")
    started = {"library": "NCCL 2.28.9", "baseline": {"NCCL_P2P_DISABLE": "1"}}

    def asked(surroundings: dict[str, Any], **changes: Any) -> Any:
        built = plan(spec, version=(2, 28, 9), **changes)
        return options(spec, built, nranks=2, surroundings=surroundings).defining()

    before = asked(started)
    refuse_difference(before, asked(started), where="x")
    for now, says in (
        (asked({**started, "baseline": {}}), 'baseline.NCCL_P2P_DISABLE: "1", now not set'),
        (asked({**started, "library": "NCCL 2.30.3"}), 'library: "NCCL 2.28.9", now "NCCL 2.30.3"'),
        (asked(started, environ={"NCCL_PROTO": "LL"}), r"axis NCCL_PROTO: \[.*\], now not set"),
    ):
        with pytest.raises(CollbenchError, match=f"another {says}") as caught:
            refuse_difference(before, now, where="x")
        assert "start anew" in caught.value.fix


def test_the_command_that_lifts_the_order_begins_a_study_of_its_own() -> None:
    spec = load_spec("quickstart")
    built = plan(spec, keep_order=True)
    command = ("collbench", "sweep", "quickstart", "--keep-order", "--resume", "--seed", "1")
    asked = options(spec, built, nranks=2, command=command)
    assert asked.not_searched == ("numerics",)
    assert asked.not_searched_command == "collbench sweep quickstart --seed 1"


def test_the_command_line_wins_over_the_file() -> None:
    spec = load_spec("decode")
    built = plan(spec, version=(2, 28, 9))
    asked = options(
        spec, built, nranks=2, strategy="tpe", budget="5m", objective="pareto", seed=7, resume=True
    )
    assert (asked.strategy, asked.objective, asked.seed, asked.resume) == ("tpe", "pareto", 7, True)
    assert asked.budget.seconds == 300
    assert not asked.beside
    assert options(load_spec("quickstart"), built, nranks=4).beside
