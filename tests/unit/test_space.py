"""Spaces: what can be proposed, expressed, reduced."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.space.axes import Axis, Space, axis, key

VALUES = st.sampled_from(["1", "2", "4", "8"])


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """A few axes, some of two variables, some that act only under a value of an earlier one."""
    axes: list[Axis] = []
    for i in range(draw(st.integers(1, 4))):
        values = draw(st.lists(VALUES, min_size=1, max_size=3, unique=True))
        choices = [{f"V{i}": value} for value in values]
        if draw(st.booleans()):
            choices += [{f"V{i}": value, f"W{i}": value} for value in values]
        when: dict[str, tuple[str, ...]] = {}
        if axes and draw(st.booleans()):
            when = {f"V{i - 1}": ("unset", draw(VALUES))}
        axes.append(axis(f"axis {i}", choices, when=when))
    implied = {"V0": key({"SWITCH": "1"})} if draw(st.booleans()) else {}
    return Space(axes=tuple(axes), implied=implied)


@settings(max_examples=40, deadline=None)
@given(spaces())
def test_every_setting_of_a_space_can_be_written_as_labels_and_back(space: Space) -> None:
    walked = list(space.walk())
    assert walked[0] == {}
    assert len({key(one) for one in walked}) == len(walked)
    for one in walked:
        labels = space.labels_of(one)
        assert labels is not None
        assert space.settings_of(labels) == one
        assert space.contains(one)


@settings(max_examples=30, deadline=None)
@given(spaces(), st.randoms())
def test_neighbours_and_reductions_stay_inside_the_space(space: Space, random: object) -> None:
    walked = list(space.walk())
    one = walked[len(walked) // 2]
    members = {key(w) for w in walked}
    for near in space.neighbours(one):
        assert key(near) in members
        assert near != one
    for less in space.reductions(one):
        assert key(less) in members
        assert len(less) < len(one)


def test_the_least_channels_are_never_above_the_most() -> None:
    from collbench.space import load_spec, plan

    for name in ("decode", "prefill"):
        for one in plan(load_spec(name), version=(2, 28, 9)).space.walk():
            least, most = (one.get(f"NCCL_{m}_NCHANNELS") for m in ("MIN", "MAX"))
            assert least is None or most is None or int(least) <= int(most)


def test_a_needed_switch_comes_and_goes_with_what_needs_it() -> None:
    space = Space(
        axes=(axis("algorithm", [{"ALG": "1"}]), axis("eager", [{"EAGER": "64"}])),
        implied={"ALG": key({"RULES": "1"})},
    )
    whole = {"ALG": "1", "RULES": "1", "EAGER": "64"}
    assert space.contains(whole)
    assert not space.contains({"ALG": "1"})
    assert not space.contains({"RULES": "1"})
    assert space.reductions(whole) == [{"EAGER": "64"}, {"ALG": "1", "RULES": "1"}]


def test_forbidden_settings_and_non_members_are_not_proposed() -> None:
    axes = (axis("a", [{"A": "1"}]), axis("b", [{"B": "1"}]))
    both = key({"A": "1", "B": "1"})
    assert [key(w) for w in Space(axes=axes, forbidden=(both,)).walk()] == [
        (),
        (("B", "1"),),
        (("A", "1"),),
    ]
    only = Space(axes=axes, members=frozenset({(), both}))
    assert [key(w) for w in only.walk()] == [(), both]
    assert only.neighbours({}) == []


@pytest.mark.parametrize("settings", [{"A": "2"}, {"C": "1"}, {"A": "1", "C": "1"}])
def test_what_the_axes_do_not_know_is_not_contained(settings: dict[str, str]) -> None:
    space = Space(axes=(axis("a", [{"A": "1"}]),))
    assert space.labels_of(settings) is None
    assert not space.contains(settings)
