"""Scores, drift, outliers, and the strategies' choices."""

import math
import random

import numpy as np
import pytest

from collbench.confirm.objective import Sample
from collbench.errors import CollbenchError
from collbench.search.history import History, Seen
from collbench.search.level import smoothed
from collbench.search.strategies import STRATEGIES, View, choose, coarse, next_single
from collbench.search.surprise import surprising
from collbench.space.axes import Space, axis, key

CHANNELS = [{"NCCL_MIN_NCHANNELS": c} for c in ("4", "8", "16", "32", "64")]
SPACE = Space(axes=(axis("channels", CHANNELS), axis("proto", [{"NCCL_PROTO": "LL"}])))


def seen(settings: dict[str, str], us: float, **cases: float) -> Seen:
    return Seen(key=key(settings), outcome="ok", sample=Sample(value_us=us, cases=cases))


def history(*launches: Seen, sd: float = 0.004, beside: bool = False) -> History:
    made = History(reference=(), sd=sd, beside=beside)
    for launch in launches:
        made.add(launch)
    return made


def channels(count: str) -> dict[str, str]:
    return {"NCCL_MIN_NCHANNELS": count}


def test_a_drift_between_defaults_is_taken_out_of_the_scores() -> None:
    launches = []
    for i in range(60):
        level = 1000 * (1 + 0.0004 * i)
        launches.append(
            seen({}, level) if i % 6 == 0 else seen(channels("8" if i % 2 else "16"), level * 0.95)
        )
    for score in history(*launches).scores().values():
        assert score.log == pytest.approx(math.log(0.95), abs=0.002)


def test_the_smoother_runs_through_calm_defaults_and_averages_noisy_ones() -> None:
    at = np.arange(0, 60, 6)
    logs = np.array([[0.02 * (-1) ** i] for i in range(len(at))])
    calm = smoothed(at, logs, 60, sd=0.0001)[at, 0]
    noisy = smoothed(at, logs, 60, sd=0.02)[at, 0]
    assert np.abs(calm - logs[:, 0]).max() < 0.002
    assert np.abs(noisy).max() < 0.01


def test_an_outlying_default_does_not_make_its_neighbours_look_fast() -> None:
    launches = []
    for i in range(24):
        slow = 1.25 if i == 12 else 1.0
        launches.append(seen({}, 1000 * slow) if i % 4 == 0 else seen(channels("8"), 1000))
    assert abs(history(*launches).scores()[key(channels("8"))].log) < 0.003


def test_a_default_far_above_the_last_ones_is_asked_for_again_once() -> None:
    made = history(*[seen({}, 1000) for _ in range(3)], seen({}, 1300))
    assert not made.doubtful_default()  # it follows a default: believed
    made.add(seen(channels("8"), 1300))
    made.add(seen({}, 1700))
    assert made.doubtful_default()
    made.add(seen({}, 1700))
    assert not made.doubtful_default()


def test_beside_scores_compare_with_the_default_just_before() -> None:
    made = history(
        seen({}, 1000),
        seen(channels("8"), 900),
        seen({}, 2000),
        seen(channels("8"), 1800),
        beside=True,
    )
    assert made.scores()[key(channels("8"))].log == pytest.approx(math.log(0.9))


def test_one_outlying_launch_of_a_candidate_is_left_out_once_there_are_two() -> None:
    made = history(seen({}, 1000), seen(channels("8"), 1250), seen(channels("8"), 950))
    assert made.scores()[key(channels("8"))].log == pytest.approx(math.log(0.95), abs=0.002)


def test_the_guard_turns_a_candidate_away_only_beyond_limit_and_noise() -> None:
    made = history(
        seen({}, 1000, big=300), seen({"NCCL_PROTO": "LL"}, 900, big=900),
        seen(channels("8"), 950, big=307), seen(channels("16"), 950, big=312),
        seen(channels("16"), 950, big=312),
    )  # fmt: skip
    scores = made.scores()
    assert not scores[key({"NCCL_PROTO": "LL"})].feasible
    assert scores[key(channels("8"))].feasible
    assert not scores[key(channels("16"))].feasible
    assert [s.key for s in made.ranking()] == [key(channels("8"))]


def test_a_value_is_condemned_by_two_hangs_unless_it_worked_as_often() -> None:
    made = history()
    both = key({"NCCL_PROTO": "LL", **channels("8")})
    made.add(seen(channels("8"), 900))
    made.add(seen(channels("8"), 900))
    for _ in range(2):
        made.add(Seen(key=both, outcome="hung", sample=None, reason="deadline"))
    assert made.condemned() == {("NCCL_PROTO", "LL")}


def test_a_reading_far_above_the_values_on_either_side_is_launched_again() -> None:
    readings = {"4": 1000.0, "8": 960.0, "16": 1150.0, "32": 955.0, "64": 990.0}
    made = history(seen({}, 1000), *(seen(channels(c), us) for c, us in readings.items()))
    assert surprising(SPACE, made) == key(channels("16"))
    made.add(seen(channels("16"), 940))
    assert surprising(SPACE, made) is None


def test_a_slow_end_of_an_axis_is_taken_at_its_word() -> None:
    made = history(seen({}, 1000), *(seen(channels(c), 960.0) for c in ("8", "16", "32")),
                   seen(channels("4"), 1150))  # fmt: skip
    assert surprising(SPACE, made) is None


def test_coarse_values_come_first() -> None:
    values = list(SPACE.axes[0].choices[1:])
    order = [c.label for c in coarse(values)]
    assert order[0] == "16"
    assert sorted(order, key=int) == ["4", "8", "16", "32", "64"]


def test_axes_are_tried_alone_each_value_once() -> None:
    made = history(seen({}, 1000))
    found = []
    while True:
        view = View(space=SPACE, history=made, left=20, total=20, rng=np.random.default_rng(0))
        name = next_single(view, 20)
        if name is None:
            break
        found.append(name)
        made.add(seen(dict(name), 1000))
    assert len(found) == len(set(found)) == 6
    assert all(len(name) == 1 for name in found)


def test_auto_is_exhaustive_only_where_the_space_fits_the_budget() -> None:
    assert choose("auto", 20, 30)[1] == "exhaustive"
    assert choose("auto", 29, 30)[1] == "coordinate+tpe"
    with pytest.raises(CollbenchError) as caught:
        choose("annealing", 20, 30)
    assert all(name in caught.value.fix for name in STRATEGIES)


def test_scores_of_many_random_launches_are_unbiased_under_outliers() -> None:
    rng = random.Random(0)
    errors = []
    for _ in range(20):
        launches = []
        for i in range(36):
            factor = math.exp(rng.gauss(0, 0.004)) * (1.25 if rng.random() < 0.05 else 1)
            name = {} if i % 6 == 0 else channels(("4", "8", "16", "32", "64")[i % 5])
            launches.append(seen(name, 1000 * factor))
        scores = history(*launches).scores().values()
        errors += [abs(s.log) for s in scores]
    assert sorted(errors)[int(0.9 * len(errors))] < 0.01
