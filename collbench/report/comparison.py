"""Two results beside each other, and the history of one machine's profiles."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from collbench.compare import compare
from collbench.compare import differences as compare_keys
from collbench.report import host, plots
from collbench.report.parts import Cell, Figure, Part, Section, Table, Text
from collbench.report.story import Arm, Story
from collbench.report.trials import named

ONLY = {"only in A", "only in B"}
KEYS = ("driver", "cuda", "torch", "library", "library_path", "cpu", "kernel", "cmdline")


def beside(first: Story, second: Story) -> Story:
    """Return one story with the arms of both, A's first arm as the reference of ratios."""
    arms = [*_labelled(first, "A"), *_labelled(second, "B")]
    return dataclasses.replace(first, arms=arms, trials=[], files={}, warnings=[])


def _labelled(story: Story, letter: str) -> list[Arm]:
    single = len(story.arms) == 1
    return [
        dataclasses.replace(arm, name=letter if single else f"{letter} {arm.name}")
        for arm in story.arms
    ]


def verdicts(first: Story, second: Story) -> Section:
    """Return the verdict of every case of two run records, as `collbench compare` gives them."""
    section = Section(name="verdicts", title="Verdicts")
    if first.record is None or second.record is None:
        return section
    found = compare(first.record, second.record)
    rows: list[list[Cell]] = []
    lone = Counter(case.differs[0] for case in found.cases if set(case.differs) & ONLY)
    for case in found.cases:
        if set(case.differs) & ONLY:
            continue
        low, high = case.interval or (None, None)
        launches = f"{case.launches[0]} + {case.launches[1]}"
        words = case.verdict.replace("_", " ")
        why = ", ".join(case.differs)
        rows.append([case.key, words, case.ratio, low, high, case.p_adjusted, launches, why])
    table = Table(
        caption="Every case, B / A",
        columns=["case", "verdict", "ratio", "low", "high", "p (Holm)", "launches", "why"],
        rows=rows,
        note="Rank tests over launches, adjusted for the number of cases; intervals are 95 %. "
        + ("Launches alternated and are paired." if found.paired else "Launches are not paired."),
    )
    parts: list[Part] = [table]
    parts += [Text(text=f"{count} cases {where}.") for where, count in lone.items()]
    if found.warnings:
        parts.append(host.warnings_table(found.warnings))
    return Section(name="verdicts", title="Verdicts", parts=parts)


def sentence(first: Story, second: Story) -> str:
    """Return the verdict on two run records; empty where one of them is something else."""
    if first.record is None or second.record is None:
        return ""
    found = compare(first.record, second.record)
    if found.differs:
        keys = ", ".join(difference.key for difference in found.differs)
        return f"Not comparable: A and B differ in {keys}."
    step = next((case for case in found.cases if case.key == "step"), None)
    text = ""
    if step is not None and step.ratio is not None:
        between = ""
        if step.interval:
            between = f", 95 % interval {step.interval[0]:.3f} to {step.interval[1]:.3f}"
        words = step.verdict.replace("_", " ")
        text = f"The step, B against A: {words} (ratio {step.ratio:.3f}{between}). "
    cases = [c for c in found.cases if c.key != "step" and not set(c.differs) & ONLY]
    counts = Counter(case.verdict.replace("_", " ") for case in cases)
    listed = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    return f"{text}{'Cases: ' + listed + '.' if listed else ''}".strip() or "No case in common."


def differences(first: Story, second: Story) -> Section:
    """Return what the two results are, and what differs in machine, method and settings."""
    rows: list[list[Cell]] = [
        ["from", first.path, second.path],
        ["made", first.created, second.created],
        ["settings", named(first.settings), named(second.settings)],
    ]
    pairs: list[tuple[str, object, object]] = [
        ("backend", first.backend, second.backend),
        ("ranks", first.nranks, second.nranks),
        ("method version", first.method, second.method),
        ("baseline", named(first.baseline), named(second.baseline)),
        ("pinned", named(first.pinned), named(second.pinned)),
    ]
    if first.machine and second.machine:
        pairs += [(k, getattr(first.machine, k), getattr(second.machine, k)) for k in KEYS]
        pairs.append(
            ("GPUs", _gpus(first), _gpus(second)),
        )
    if first.record and second.record:
        found, _ = compare_keys(first.record, second.record)
        pairs += [(d.key, d.a, d.b) for d in found if d.key not in {name for name, _, _ in pairs}]
    changed: list[list[Cell]] = [[n, _shown(a), _shown(b)] for n, a, b in pairs if a != b]
    parts: list[Part] = [Table(caption="A and B", columns=["what", "A", "B"], rows=rows + changed)]
    if not changed:
        parts.append(Text(text="Machine, libraries, method and baseline are the same."))
    return Section(name="differs", title="What differs", parts=parts)


def _shown(value: object) -> str | None:
    return None if value in (None, "") else str(value)


def _gpus(story: Story) -> str:
    assert story.machine is not None
    names = [gpu.name for gpu in story.machine.gpus]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def history(stories: Sequence[Story]) -> Section:
    """Return the profiles of a machine over time: default and profile, and what was set."""
    rows: list[list[Cell]] = []
    for story in stories:
        document = story.document
        ratio = document.get("ratio")
        interval = document.get("interval") or [None, None]
        rows.append(
            [
                story.created,
                story.title.removeprefix("Profile ").split(",")[0],
                story.workload,
                named(story.settings),
                _ms(document.get("default_us")),
                _ms(document.get("winner_us")),
                ratio,
                interval[0],
                interval[1],
                story.machine.library if story.machine else None,
            ]
        )
    table = Table(
        caption="Profiles of this machine, oldest first",
        columns=[
            *("made", "profile", "workload", "settings", "default ms", "profile ms"),
            *("ratio", "low", "high", "library"),
        ],
        rows=rows,
    )
    dated = [s for s in stories if s.created and s.document.get("default_us")]
    if len(dated) < 2:
        return Section(name="history", title="History", parts=[table])
    data: list[dict[str, Any]] = []
    for index, (name, key) in enumerate((("default", "default_us"), ("profile", "winner_us"))):
        some = [s for s in dated if s.document.get(key)]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": name,
                "x": [s.created for s in some],
                "y": [s.document[key] / 1000 for s in some],
                "text": [f"{name} {s.document[key] / 1000:.4g} ms\n{s.title}" for s in some],
                "hovertemplate": "%{text}<extra></extra>",
                "line": {"color": plots.colour(index), "dash": plots.DASHES[index]},
                "marker": {
                    "color": plots.colour(index),
                    "symbol": plots.SYMBOLS[index],
                    "size": 9,
                },
            }
        )
    last = dated[-1].document
    figure = Figure(
        name="history",
        caption="Default and profile over time",
        data=data,
        layout={
            "xaxis": {"type": "date", "title": {"text": "date (UTC)"}},
            "yaxis": plots.axis("objective, ms", rangemode="tozero"),
        },
        says=f"{len(dated)} profiles; the last: default {last['default_us'] / 1000:.4g} ms, "
        f"profile {(last.get('winner_us') or 0) / 1000:.4g} ms.",
        table=None,
    )
    return Section(name="history", title="History", parts=[figure, table])


def _ms(value: Any) -> float | None:
    return value / 1000 if isinstance(value, int | float) else None
