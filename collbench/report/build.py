"""From stories to a page: which chapters, in which order, and the verdict above them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from collbench.report import comparison, host, links, mattered, sizes, skew, step, trials
from collbench.report.parts import Page, Part, Section, Table, Text, Tiles
from collbench.report.story import Arm, Story
from collbench.report.values import case_launches, ratio_of, step_value
from collbench.terminal.summary import verdict_sentence
from collbench.terminal.words import percent_text, settings_text, time_text
from collbench.units import format_size


def page_of(read: Sequence[Sequence[Story]], *, title: str | None = None) -> Page:
    """Return the page of one result, of two compared, or of a history.

    Args:
        read: The stories of every path given: two paths of one result each are compared.
        title: Instead of the title made from the results.

    Raises:
        ValueError: no story.
    """
    stories = sorted(
        (story for group in read for story in group), key=lambda s: (s.created, s.path)
    )
    if not stories:
        raise ValueError("no result to report")
    if len(stories) == 1:
        page = single(stories[0])
    elif [len(group) for group in read] == [1, 1]:
        page = compared(read[0][0], read[1][0])
    else:
        page = over_time(stories)
    return dataclasses.replace(page, title=title) if title else page


def single(story: Story) -> Page:
    """Return the page of one result."""
    sections = [
        Section(name="overview", title="In short", parts=_overview(story)),
        host.files_section(story),
        step.section(story),
        sizes.section(story),
        trials.section(story),
        mattered.section(story),
        mattered.front_section(story),
        skew.section(story),
        links.section(story),
        host.choices_section(story),
        host.machine_section(story),
    ]
    verdict, good = verdict_of(story)
    return Page(title=story.title, verdict=verdict, good=good, sections=sections)


def verdict_of(story: Story) -> tuple[str, bool | None]:
    """Return the verdict in one sentence, and whether it is a gain."""
    if story.document.get("verdict") in ("profile", "keep_default"):
        return verdict_sentence(story.document), (
            True if story.document["verdict"] == "profile" else None
        )
    failed = [run for arm in story.arms for run in arm.runs if run.outcome != "ok"]
    launches = sum(len(arm.runs) for arm in story.arms)
    if failed and len(failed) == launches:
        return f"Nothing was measured: {failed[0].outcome}: {failed[0].reason}.", False
    text = _measured(story)
    if failed:
        return f"{text} {len(failed)} of {launches} launches did not end well.", False
    return text, None


def _measured(story: Story) -> str:
    """Return what a result without a verdict says, by its first arm's step or smallest case."""
    parts = []
    for arm in story.arms:
        value = step_value(arm, story.backend)
        if value:
            name = arm.name[:1].upper() + arm.name[1:]
            text = f"{name}: the step takes {time_text(value.total.mid)}"
            if value.exposed:
                text += f", {time_text(value.exposed.mid)} of it exposed communication"
            parts.append(text)
            continue
        cases = case_launches(arm, story.backend)
        if cases:
            case = min(cases, key=lambda c: (c.collective, c.size_bytes))
            middle = ratio_of(cases[case], [1.0]).mid
            parts.append(
                f"{arm.name}: {case.collective} of {format_size(case.size_bytes)} takes "
                f"{time_text(middle)}"
            )
    if not parts and story.trials:
        return f"A study of {len(story.trials)} launches, without a verdict yet."
    return "; ".join(parts) + "." if parts else "No times in this result."


def _overview(story: Story) -> list[Part]:
    document = story.document
    tiles: list[tuple[str, str, str]] = []
    default, winner = document.get("default_us"), document.get("winner_us")
    if default:
        tiles.append(("default", time_text(default), "objective"))
    if winner and document.get("verdict") == "profile":
        ratio = document.get("ratio") or winner / default if default else None
        tiles.append(("profile", time_text(winner), percent_text(ratio) if ratio else ""))
    before, after = document.get("default_exposed_us"), document.get("winner_exposed_us")
    if before and after:
        tiles.append(
            ("exposed communication", time_text(after), f"default {time_text(before)}"),
        )
    if document.get("noise_pct") is not None:
        tiles.append(("noise floor", f"{document['noise_pct']:.1f} %", "default against itself"))
    if document.get("trials"):
        tiles.append(("launches", str(document["trials"]), "of all stages"))
    parts: list[Part] = [Tiles(tiles=tiles)] if tiles else []
    parts += [
        Text(text=f"This holds only where: {text}", kind="warning")
        for text in document.get("must_hold") or ()
    ]
    parts += [Text(text=str(text)) for text in document.get("notes") or ()]
    if story.settings:
        parts.append(
            Table(
                caption="Settings",
                columns=["variable", "value"],
                rows=[[name, value] for name, value in story.settings.items()],
            )
        )
    hazards = ", ".join(str(name) for name in document.get("not_searched") or ())
    if hazards:
        text = f"Not searched: {hazards}."
        parts.append(Text(text=f"{text} {document.get('not_searched_command') or ''}".strip()))
    return parts


def compared(first: Story, second: Story) -> Page:
    """Return the page of two results beside each other; ratios are B / A."""
    both = comparison.beside(first, second)
    sections = [
        comparison.verdicts(first, second),
        comparison.differences(first, second),
        step.section(both),
        sizes.section(both),
        skew.section(both),
        host.choices_section(both),
    ]
    return Page(
        title=f"{first.title} against {second.title}",
        verdict=comparison.sentence(first, second) or _compared_verdict(first, second),
        sections=sections,
    )


def _compared_verdict(first: Story, second: Story) -> str:
    if not first.arms or not second.arms:
        return "Nothing to compare: one of the two has no times."
    arms = [main_arm(first), main_arm(second)]
    one, two = (step_value(arm, s.backend) for arm, s in zip(arms, (first, second), strict=True))
    if one and two:
        ratio = ratio_of(two.totals, one.totals)
        between = f" ({ratio.low:.3f} to {ratio.high:.3f})" if ratio.has_interval else ""
        change = percent_text(ratio.mid)
        change = f"{change} time as" if change == "the same" else f"{change} time than"
        return (
            f"The step of B ({arms[1].name}) takes {change} A's ({arms[0].name}): "
            f"ratio {ratio.mid:.3f}{between}."
        )
    a, b = (case_launches(arm, s.backend) for arm, s in zip(arms, (first, second), strict=True))
    shared = sorted(set(a) & set(b), key=lambda c: c.key)
    if not shared:
        return "Nothing to compare: the two have no case in common."
    ratios = [(ratio_of(b[case], a[case]).mid, case) for case in shared]
    least, most = min(ratios, key=lambda r: r[0]), max(ratios, key=lambda r: r[0])
    return (
        f"B / A lies between {least[0]:.3f} ({format_size(least[1].size_bytes)}) and "
        f"{most[0]:.3f} ({format_size(most[1].size_bytes)}) over {len(shared)} shared cases."
    )


def main_arm(story: Story) -> Arm:
    """Return the arm a result is about: the one with its settings, else the first."""
    return next((arm for arm in story.arms if arm.settings == story.settings), story.arms[0])


def over_time(stories: Sequence[Story]) -> Page:
    """Return the history of a machine, and its last profile in full."""
    last = single(stories[-1])
    names = {story.machine.host for story in stories if story.machine}
    where = ", ".join(sorted(name for name in names if name)) or "this machine"
    settings = settings_text(stories[-1].settings)
    return Page(
        title=f"Profiles of {where}",
        verdict=f"{len(stories)} results; the newest: {last.verdict} ({settings})",
        good=last.good,
        sections=[comparison.history(stories), *last.sections],
    )
