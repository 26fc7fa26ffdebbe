"""Combinations that no launch has held: what is tried, what is not, and where a surprise leads."""

import math

import numpy as np

from collbench.confirm.objective import Sample
from collbench.search.history import History, Seen, centre
from collbench.search.pairs import beside_best, pairs, unpaired
from collbench.search.strategies import Coordinate, View
from collbench.space.axes import Key, Space, axis, key

SPACE = Space(
    axes=(
        axis("a", [{"A": "1"}, {"A": "2"}]),
        axis("b", [{"B": "1"}, {"B": "2"}]),
        axis("c", [{"C": "1"}]),
    )
)
SINGLES = {"A": ("1", "2"), "B": ("1", "2"), "C": ("1",)}
Effects = dict[Key, float]


def told(effects: Effects, *names: Key) -> History:
    """Return a history of exact launches, the default before each."""
    history = History(reference=(), sd=0.003, beside=True)
    for name in names:
        for one in ((), name):
            value = 1000 * math.exp(effects.get(one, 0.0))
            history.add(Seen(key=one, outcome="ok", sample=Sample(value_us=value)))
    return history


def singles() -> list[Key]:
    return [key({name: value}) for name, values in SINGLES.items() for value in values]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_the_most_pairs_for_the_first_time_come_first_and_none_twice() -> None:
    history = told({}, *singles())
    left = [name for name in SPACE.head if name and name not in history.scores()]
    covered: set[object] = set()
    tried = []
    while (name := unpaired(SPACE, history, left, rng())) is not None:
        new = pairs(SPACE, name) - covered
        assert new
        covered |= pairs(SPACE, name)
        tried.append(len(new))
        history.add(Seen(key=(), outcome="ok", sample=Sample(value_us=1000)))
        history.add(Seen(key=name, outcome="ok", sample=Sample(value_us=1000)))
    assert tried == sorted(tried, reverse=True)
    assert tried[0] == 3
    assert len(covered) == 4 + 2 + 2  # a x b, a x c, b x c: every pair was seen


def test_a_choice_that_is_much_slower_alone_is_not_tried_with_others() -> None:
    history = told({key({"A": "2"}): 0.3}, *singles())
    for seed in range(20):
        name = unpaired(SPACE, history, SPACE.head, np.random.default_rng(seed))
        assert name is not None
        assert ("A", "2") not in name


def test_a_best_that_its_choices_did_not_promise_is_launched_again_then_looked_around() -> None:
    best = key({"A": "1", "B": "1"})
    surprise = {best: -0.2}
    left = [name for name in SPACE.head if len(name) > 1 and name != best]
    assert beside_best(SPACE, told({}, *singles(), best), left) is None
    assert beside_best(SPACE, told(surprise, *singles(), best), left) == best
    near = beside_best(SPACE, told(surprise, *singles(), best, best), left)
    assert near in {key(one) for one in SPACE.neighbours(dict(best))}


def test_two_settings_that_are_slower_alone_are_found_together() -> None:
    """Nothing gains alone: the launches that are left go to what was not seen, not to repeats."""
    good = key({"A": "1", "B": "1"})
    effects = {key({"A": "1"}): 0.03, key({"B": "1"}): 0.03}
    history = told(effects, *singles())
    found: list[Key] = []
    for left in range(8, 0, -1):
        view = View(
            space=SPACE,
            history=history,
            left=left,
            total=13,
            rng=np.random.default_rng(left),
            walked=lambda: SPACE.head,
        )
        name = Coordinate(sampler=True).next(view)
        assert name is not None
        found.append(name)
        value = 1000 * (0.8 if set(good) <= set(name) else math.exp(effects.get(name, 0.0)))
        history.add(Seen(key=(), outcome="ok", sample=Sample(value_us=1000)))
        history.add(Seen(key=name, outcome="ok", sample=Sample(value_us=value)))
    assert any(set(good) <= set(name) for name in found)
    assert set(good) <= set(history.ranking()[0].key)


def test_one_ratio_to_a_slow_default_is_not_believed_against_the_rest() -> None:
    assert centre([-0.7, -0.03, -0.032], 0.06) == -0.031
    assert centre([-0.03, 0.25], 0.06) == -0.03
    assert centre([-0.03, -0.03, 0.25], 0.06) == -0.03
