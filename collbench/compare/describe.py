"""A comparison as a document and as text."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import Any

from collbench import stats
from collbench.compare.compare import ALPHA, CaseComparison, Comparison
from collbench.readers.text import printable
from collbench.units import format_size

WIDTH = 80
WORDS = {
    "faster": "faster",
    "slower": "SLOWER",
    "no_difference": "no difference",
    "too_few_launches": "too few launches",
    "not_comparable": "not comparable",
}


def document(found: Comparison, a: str, b: str) -> dict[str, Any]:
    """Return what ``compare --json`` prints."""
    return {
        "schema": 1,
        "command": "compare",
        "exit_code": int(found.exit_code),
        "a": a,
        "b": b,
        "cases": [dataclasses.asdict(case) for case in found.cases],
        "differs": [difference.key for difference in found.differs],
        "differences": [dataclasses.asdict(difference) for difference in found.differs],
        "accepted": [dataclasses.asdict(difference) for difference in found.accepted],
        "settings": [dataclasses.asdict(difference) for difference in found.settings],
        "paired": found.paired,
        "tested": found.tested,
        "launches_needed": needed(found),
        "margin": found.margin,
        "warnings": [printable(warning) for warning in found.warnings],
    }


def needed(found: Comparison) -> int:
    """Return the launches an arm that every case of this comparison needs."""
    return stats.launches_for(ALPHA / max(1, found.tested), paired=False)


def text(found: Comparison, a: str, b: str) -> str:
    """Return the comparison as people read it."""
    out = [f"A {printable(a)}", f"B {printable(b)}"]
    out += [f"  {_changed(d)}" for d in found.settings]
    out += [f"  accepted: {_changed(d)}" for d in found.accepted]
    out.append("")
    if found.cases:
        out.append(f"{'case':<34}{'A us':>9}{'B us':>9}{'B/A':>8}  {'95 %':<15} verdict")
        out += [_row(case) for case in found.cases]
    else:
        out.append("no case was timed in both records")
    out += ["", *_wrapped(_method(found))]
    if found.differs:
        out += ["", "not comparable, they differ in:"]
        out += [f"  {_changed(d)}" for d in found.differs]
        keys = " ".join(f"--across {d.key}" for d in found.differs)
        out += _wrapped(f"if that is what you want to compare, add {keys}")
    if any(case.verdict == "too_few_launches" for case in found.cases):
        out += [
            "",
            *_wrapped(
                f"too few launches: a verdict on {found.tested or 1} cases needs {needed(found)} "
                f"launches in each record: collbench bench --launches {needed(found)} ..."
            ),
        ]
    if found.warnings:
        out += ["", *(line for w in found.warnings for line in _wrapped(f"warning: {w}"))]
    return "\n".join(out) + "\n"


def _method(found: Comparison) -> str:
    how = "independent launches"
    if found.paired:
        how = "the median over pairs of interleaved launches, which A us and B us do not give"
    family = f"{found.tested} cases tested together (Holm)" if found.tested > 1 else ""
    return ", ".join(
        part
        for part in (
            "B/A below 1: B is faster",
            how,
            family,
            f"differences under {found.margin:.1%} are called none",
        )
        if part
    )


def _row(case: CaseComparison) -> str:
    parts = case.key.split("/")
    name = case.key
    if len(parts) == 4:
        name = f"{parts[0]} {format_size(int(parts[1]))} {parts[2]} {parts[3]}"
    line = f"{name:<34}"
    line += f"{case.a_us:>9.2f}" if case.a_us is not None else f"{'-':>9}"
    line += f"{case.b_us:>9.2f}" if case.b_us is not None else f"{'-':>9}"
    line += f"{case.ratio:>8.3f}" if case.ratio is not None else f"{'-':>8}"
    ends = f"{case.interval[0]:.3f} to {case.interval[1]:.3f}" if case.interval else "-"
    line += f"  {ends:<15} {WORDS[case.verdict]}"
    return line + (f": {', '.join(case.differs)}" if case.differs else "")


def _changed(difference: Any) -> str:
    return printable(f"{difference.key}: {difference.a} -> {difference.b}", 300)


def _wrapped(words: str) -> list[str]:
    return textwrap.wrap(printable(words, 600), WIDTH, subsequent_indent="  ")
