"""Choices that cannot all be launched alone: each has its launch all the same."""

import json
import math
from pathlib import Path

import numpy as np

from benchmarks.landscape import read
from benchmarks.search_replay import Setting, one
from collbench.confirm.objective import Sample
from collbench.search.history import History, Seen
from collbench.search.strategies import Coordinate, Exhaustive, View
from collbench.search.unseen import covering, onto, unseen
from collbench.space.axes import Key, Space, axis, key

AXES = (
    axis("a", [{"A": str(n)} for n in range(1, 7)]),
    axis("b", [{"B": "1"}, {"B": "2"}]),
    axis("c", [{"C": "1"}]),
)
SPACE = Space(axes=AXES)
COLUMNS = [(one.name, one.choices[1:]) for one in AXES]


def told(times: dict[Key, float], history: History | None = None) -> History:
    """Return a history of exact launches, the default (1000) before each; 0: it died."""
    history = history or History(reference=(), sd=0.003, beside=True)
    for name, us in times.items():
        history.add(Seen(key=(), outcome="ok", sample=Sample(value_us=1000)))
        if us:
            history.add(Seen(key=name, outcome="ok", sample=Sample(value_us=us)))
        else:
            history.add(Seen(key=name, outcome="died", sample=None, reason="no algorithm"))
    return history


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_choice_is_seen_once_a_launch_ended_well_or_two_failed() -> None:
    history = told({key({"A": "1", "B": "1"}): 990, key({"A": "2", "C": "1"}): 0})
    assert unseen(SPACE, history) == {
        *(("a", str(n)) for n in range(2, 7)), ("b", "2"), ("c", "1"),
    }  # fmt: skip
    told({key({"A": "3", "C": "1"}): 0}, history)
    assert ("c", "1") not in unseen(SPACE, history)


def test_choices_that_never_stand_alone_are_launched_together_until_all_were_seen() -> None:
    members = frozenset(name for name in SPACE.head if len(name) != 1)
    space = Space(axes=AXES, members=members)
    history = told({})
    launches = 0
    while True:
        left = [name for name in members if name and name not in history.scores()]
        name = covering(space, history, left, rng())
        if name is None:
            break
        told({name: 1000}, history)
        launches += 1
    assert not unseen(space, history)
    assert launches == 6  # the six of `a`, the others with them


def test_a_choice_is_tried_on_the_best_and_alone_where_that_cannot_be() -> None:
    best = key({"B": "1"})
    history = told({best: 900})
    name = onto(SPACE, history, best, COLUMNS)
    assert name == key({"A": "1", "B": "1"})
    apart = Space(axes=AXES, forbidden=tuple(key({"A": str(n), "B": "1"}) for n in range(1, 7)))
    assert onto(apart, history, best, COLUMNS) == key({"A": "1"})


def test_every_axis_has_its_part_and_no_choice_is_tried_twice() -> None:
    history = told({})
    order = []
    while (name := onto(SPACE, history, (), COLUMNS)) is not None:
        told({name: 1000}, history)
        order.append(name[0][0])
    assert sorted(order[:3]) == ["A", "B", "C"]
    assert sorted(order) == ["A"] * 6 + ["B"] * 2 + ["C"]


def test_numbers_beside_the_best_come_first_once_the_range_was_covered() -> None:
    line = Space(axes=AXES[:1])
    best = key({"A": "5"})
    history = told({key({"A": "1"}): 1000, key({"A": "3"}): 980, best: 940})
    found = onto(line, history, best, COLUMNS[:1])
    assert found in (key({"A": "4"}), key({"A": "6"}))


def searched(space: Space, effects: dict[tuple[str, str], float], launches: int) -> History:
    """Return what `Coordinate` launches on exact times, effects added up."""
    history = told({})
    for done in range(launches):
        walked = [name for name in space.head if name]
        view = View(
            space=space, history=history, left=launches - done, total=launches,
            rng=np.random.default_rng(done), walked=lambda walked=walked: walked,
        )  # fmt: skip
        name = Coordinate().next(view)
        assert name is not None
        told({name: 1000 * math.exp(sum(effects.get(part, 0.01) for part in name))}, history)
    return history


GOOD = {("A", "5"): -0.05, ("B", "2"): -0.04, ("C", "1"): -0.03}


def test_a_space_with_more_choices_than_launches_still_gets_its_combinations() -> None:
    best = searched(SPACE, GOOD, 8).ranking()[0]
    assert len(best.key) > 1
    assert best.log < -0.05


def test_a_space_whose_choices_never_stand_alone_is_searched_to_its_best() -> None:
    space = Space(axes=AXES, members=frozenset(name for name in SPACE.head if len(name) != 1))
    assert searched(space, GOOD, 20).ranking()[0].key == key({"A": "5", "B": "2", "C": "1"})


def launch(env: dict[str, str]) -> dict[str, object]:
    gain = math.fsum(GOOD.get((n[-1], v), 0.01) for n, v in env.items())
    step = [round(1000 * math.exp(gain), 3)]
    result = {"ar": {"65536": [10.0]}, "ag": {}, "step_us": step, "step_nocomm_us": [500.0]}
    return {"env": env, "res": result}


def test_a_landscape_without_single_settings_is_replayed_near_its_best(tmp_path: Path) -> None:
    envs = [{f"NCCL_X{n}": v for n, v in name} for name in SPACE.head if len(name) != 1]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(launch(env)) for env in [{}, *envs]))
    setting = Setting(
        paths=(str(path),), budget=25, strategy="auto", noise_pct=0.3, null=False, plant_pct=None
    )
    regrets = sorted(one(setting, seed).search_regret_pct for seed in range(5))
    assert read([path]).regret_pct(()) > 12
    assert regrets[2] < 1


def test_an_exhaustive_search_launches_a_slow_single_launch_again() -> None:
    line = Space(axes=AXES[:1])
    slow, broken = key({"A": "5"}), key({"A": "6"})
    history = told({key({"A": str(n)}): 1000 - n for n in range(1, 5)} | {slow: 1200})
    guarded = {"all_reduce/8388608/bfloat16/graph": 100.0}
    for name, us, case in (((), 1000.0, 1.0), (broken, 900.0, 1.5)):
        cases = {one: value * case for one, value in guarded.items()}
        history.add(Seen(key=name, outcome="ok", sample=Sample(value_us=us, cases=cases)))
    order = []
    for done in range(8):
        walked = [name for name in line.head if name]
        view = View(
            space=line, history=history, left=12 - done, total=20, rng=rng(),
            walked=lambda walked=walked: walked,
        )  # fmt: skip
        name = Exhaustive().next(view)
        assert name is not None
        order.append(name)
        told({name: 950 if name == slow else 996}, history)
    assert slow in order
    assert broken not in order  # fast, and slow where it is guarded: no outlier
    assert order[-1] == slow  # the best again
