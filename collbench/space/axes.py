"""A search space: axes with labelled choices, conditions between them, and what may be proposed.

Pure. An axis sets one variable or several together (least and most channels), so that rules
such as "least <= most" hold by construction and no sampler has to learn them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from collbench.job import Settings

UNSET = "unset"
Key = tuple[tuple[str, str], ...]


def key(settings: Settings) -> Key:
    """Return settings in a form that can be compared and hashed."""
    return tuple(sorted(settings.items()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One point of an axis."""

    label: str
    settings: Key


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One dimension; its first choice leaves everything unset."""

    name: str
    choices: tuple[Choice, ...]
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Variable -> values under which the axis acts; ``unset`` stands for not set."""
    hazard: str | None = None
    variables: frozenset[str] = field(init=False, compare=False)
    """The variables that this axis sets."""

    def __post_init__(self) -> None:
        names = frozenset(name for choice in self.choices for name, _ in choice.settings)
        object.__setattr__(self, "variables", names)

    def active(self, settings: Settings) -> bool:
        """Return whether the axis acts beside what is already set."""
        return all(settings.get(name, UNSET) in values for name, values in self.when.items())

    def choice(self, label: str) -> Choice:
        """Return a choice by its label."""
        return next(c for c in self.choices if c.label == label)


def axis(
    name: str,
    settings: Sequence[Settings],
    *,
    when: Mapping[str, tuple[str, ...]] | None = None,
    hazard: str | None = None,
) -> Axis:
    """Return an axis over sets of settings; the unset choice is put in front."""
    choices = [Choice(label=UNSET, settings=())]
    for one in settings:
        choice = Choice(label=label(one), settings=key(one))
        if choice.settings and choice not in choices:
            choices.append(choice)
    return Axis(name=name, choices=tuple(choices), when=dict(when or {}), hazard=hazard)


def label(settings: Settings) -> str:
    """Return a short label, unique within an axis: ``LL``, or ``NAME=1 OTHER=2``."""
    if len(settings) == 1:
        return next(iter(settings.values()))
    return " ".join(f"{name}={value}" for name, value in sorted(settings.items()))


WIDE = 4000
"""Spaces larger than this are never walked whole."""


@dataclass(frozen=True, kw_only=True)
class Space:
    """What a study may propose.

    `base` is set in every proposal (the safe winner under a hazard study); the reference of the
    study is ``base`` alone.
    """

    axes: tuple[Axis, ...]
    seeds: tuple[Key, ...] = ()
    """Known-good settings, tried first."""
    members: frozenset[Key] | None = None
    """Where given, only these may be proposed (a recorded landscape)."""
    forbidden: tuple[Key, ...] = ()
    """Settings that must not stand together."""
    implied: Mapping[str, Key] = field(default_factory=dict)
    """Variable -> settings without which it does nothing; they come and go with it."""

    def settings_of(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of a choice of labels; axes that do not act are left out."""
        settings: dict[str, str] = {}
        for one in self.axes:
            if one.name in labels and one.active(settings):
                settings.update(one.choice(labels[one.name]).settings)
        return self.completed(settings)

    def completed(self, settings: Settings) -> dict[str, str]:
        """Return settings with what they need, and without what only others needed."""
        needed = {n for needs in self.implied.values() for n, _ in needs}
        found = {n: v for n, v in settings.items() if n not in needed}
        for name in list(found):
            found.update(self.implied.get(name, ()))
        return found

    @functools.cached_property
    def head(self) -> list[Key]:
        """Return every settings in order, the default first; at most `WIDE` + 1 of them."""
        return [key(settings) for settings in itertools.islice(self.walk(), WIDE + 1)]

    @functools.cached_property
    def _known(self) -> dict[Key, dict[str, str] | None]:
        return {}

    def labels_of(self, settings: Settings) -> dict[str, str] | None:
        """Return the label of every acting axis, or None where the space cannot express it."""
        name = key(settings)
        if name not in self._known:
            self._known[name] = self._labels_of(settings)
        found = self._known[name]
        return None if found is None else dict(found)

    def _labels_of(self, settings: Settings) -> dict[str, str] | None:
        if self.implied:
            if self.completed(settings) != dict(settings):
                return None
            needed = {n for needs in self.implied.values() for n, _ in needs}
            settings = {n: v for n, v in settings.items() if n not in needed}
        labels: dict[str, str] = {}
        built: dict[str, str] = {}
        for one in self.axes:
            part = key({n: v for n, v in settings.items() if n in one.variables})
            if not one.active(built):
                if part:
                    return None
                continue
            found = next((c for c in one.choices if c.settings == part), None)
            if found is None:
                return None
            labels[one.name] = found.label
            built.update(part)
        return labels if len(built) == len(settings) else None

    def contains(self, settings: Settings) -> bool:
        """Return whether the space may propose these settings."""
        if self.members is not None and key(settings) not in self.members:
            return False
        if any(all(settings.get(n) == v for n, v in rule) for rule in self.forbidden):
            return False
        return self.labels_of(settings) is not None

    def walk(self) -> Iterator[dict[str, str]]:
        """Yield every set of settings once, the default first."""
        seen: set[Key] = set()
        for built in self._walk(0, {}):
            settings = self.completed(built)
            found = key(settings)
            if found not in seen and self.contains(settings):
                seen.add(found)
                yield settings

    def _walk(self, index: int, built: dict[str, str]) -> Iterator[dict[str, str]]:
        if index == len(self.axes):
            yield dict(built)
            return
        one = self.axes[index]
        for choice in one.choices if one.active(built) else one.choices[:1]:
            yield from self._walk(index + 1, {**built, **dict(choice.settings)})

    def size(self) -> int:
        """Return the number of settings, counted up to `WIDE` + 1."""
        return len(self.head)

    def moved(self, settings: Settings, one: Axis, choice: Choice) -> dict[str, str] | None:
        """Return `settings` with one axis moved, or None where that cannot be proposed.

        Axes that no longer act because of the move lose their settings.
        """
        labels = {**(self.labels_of(settings) or {}), one.name: choice.label}
        moved = self.settings_of(labels)
        return moved if self.contains(moved) else None

    def neighbours(self, settings: Settings) -> list[dict[str, str]]:
        """Return what differs from `settings` in the choice of one axis."""
        found: dict[Key, dict[str, str]] = {}
        for one in self.axes:
            for choice in one.choices:
                moved = self.moved(settings, one, choice)
                if moved is not None and key(moved) != key(settings):
                    found.setdefault(key(moved), moved)
        return list(found.values())

    def reductions(self, settings: Settings) -> list[dict[str, str]]:
        """Return what is left when single variables, or a whole axis, are dropped."""
        drops = [{name} for name in settings]
        drops += [set(one.variables & set(settings)) for one in self.axes]
        found: dict[Key, dict[str, str]] = {}
        for drop in drops:
            rest = self.completed({n: v for n, v in settings.items() if n not in drop})
            if drop and key(rest) != key(settings) and self.contains(rest):
                found.setdefault(key(rest), rest)
        return list(found.values())
