"""What check decides, on a made-up lab."""

import math
from typing import Any

import pytest
from fake_lab import EFFECTS, FakeLab

from collbench.confirm import CheckResult, Recorded, Setup, check
from collbench.job import Settings

PROFILE = {"NCCL_MIN_NCHANNELS": "16"}
RATIO = math.exp(EFFECTS["NCCL_MIN_NCHANNELS", "16"])


def checked(lab: FakeLab, *, beside: bool = False, **given: Any) -> CheckResult:
    recorded = Recorded(
        settings=PROFILE, ratio=RATIO, default_us=4000.0, winner_us=4000.0 * RATIO, sd=0.004
    )
    return check(Setup(lab=lab, backend="nccl"), recorded, beside=beside, **given)


def test_the_same_machine_is_as_recorded() -> None:
    result = checked(FakeLab())
    assert result.verdict == "as_recorded"
    assert result.now.ratio == pytest.approx(RATIO, abs=0.01)
    assert result.default_change == pytest.approx(1.0, abs=0.02)
    assert result.now.pairs == 8


def test_a_profile_without_effect_no_longer_helps() -> None:
    result = checked(FakeLab(effects={}))
    assert result.verdict == "no_longer_helps"
    assert "in the record" in result.reasons[0]


def test_a_profile_that_has_become_slower_no_longer_helps() -> None:
    assert checked(FakeLab(effects={(*PROFILE.items(),)[0]: 0.1})).verdict == "no_longer_helps"


def test_half_the_gain_is_a_regression() -> None:
    assert checked(FakeLab(effects={(*PROFILE.items(),)[0]: -0.04})).verdict == "regressed"


class Slower(FakeLab):
    """The whole machine is a tenth slower; the settings help as before."""

    def launch(self, settings: Settings, *args: Any, **given: Any) -> Any:
        from dataclasses import replace

        run = super().launch(settings, *args, **given)
        assert run.step is not None
        slow = [[v * 1.1 for v in rank] for rank in run.step.total_us]
        return replace(run, step=replace(run.step, total_us=slow))


def test_a_slower_machine_is_a_regression_that_is_not_the_settings_fault() -> None:
    result = checked(Slower())
    assert result.verdict == "regressed"
    assert "what lies under them" in result.reasons[0]
    assert result.default_change == pytest.approx(1.1, abs=0.02)


def test_times_of_different_days_are_not_compared_on_a_jumping_host() -> None:
    assert checked(Slower(), beside=True).verdict == "as_recorded"


def test_another_driver_is_not_comparable_and_still_measured() -> None:
    result = checked(FakeLab(), changed=["driver 580 is 590 now"])
    assert result.verdict == "not_comparable"
    assert "driver 580 is 590 now" in result.reasons[0]
    assert result.now.pairs == 8


def test_launches_that_fail_with_the_profile_are_a_regression() -> None:
    lab = FakeLab(outcome=lambda settings, count: ("hung", "deadline") if settings else None)
    result = checked(lab)
    assert result.verdict == "regressed"
    assert "hung: deadline" in result.reasons[0]


def test_a_small_gain_on_a_noisy_machine_gets_twice_the_pairs() -> None:
    lab = FakeLab(effects={(*PROFILE.items(),)[0]: -0.005}, sd=0.01, seed=3)
    assert checked(lab).now.pairs > 8
