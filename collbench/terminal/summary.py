"""The end of a sweep in plain words, from the document that `sweep --json` prints. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from collbench.terminal.words import (
    WIDTH,
    clean,
    duration_text,
    outcomes_text,
    percent_text,
    settings_text,
    time_text,
    wrap,
)

_LABEL = 14


def sweep_summary(document: Mapping[str, Any], *, width: int = WIDTH) -> str:
    """Return the summary of a sweep: verdict first, the next command last.

    Args:
        document: The sweep's document (docs/schema/sweep.json). ``reason`` (why the default is
            kept), ``spec``, ``report`` and ``warnings`` are shown where they are present.
        width: Columns; only a single word longer than the line exceeds it.
    """
    lines = [wrap(verdict_sentence(document), width=width), ""]
    for name, value in (document.get("settings") or {}).items():
        lines.append(f"    {clean(name)}={clean(value)}")
    if document.get("settings"):
        lines.append("")
    for label, text in facts(document):
        lines.append(wrap(text, first=f"{label:<{_LABEL}}", width=width))
    lines.append("")
    lines.append(wrap(next_command(document), first=f"{'Next':<{_LABEL}}", width=width))
    return "\n".join(lines)


def verdict_sentence(document: Mapping[str, Any]) -> str:
    """Return the verdict of a sweep as one sentence."""
    default, winner = document.get("default_us"), document.get("winner_us")
    ratio, interval = document.get("ratio"), document.get("interval")
    base = "the safe profile" if document.get("reference") else "the default"
    if document.get("verdict") == "profile" and default and winner and ratio:
        between = (
            f", 95 % interval {interval[0]:.3f} to {interval[1]:.3f}"
            if isinstance(interval, list | tuple) and len(interval) == 2
            else ""
        )
        return (
            f"Faster: {time_text(default)} with {base}, {time_text(winner)} with the "
            f"profile, {percent_text(ratio)} time (ratio {ratio:.3f}{between}), "
            "confirmed on fresh launches."
        )
    reason = clean(document.get("reason") or _why_default(document), 400)
    at = f" ({time_text(default)})" if default else ""
    return f"Keep {base}{at}: {reason.rstrip('.')}."


def _why_default(document: Mapping[str, Any]) -> str:
    noise, ratio, interval = (document.get(k) for k in ("noise_pct", "ratio", "interval"))
    if isinstance(interval, list | tuple) and len(interval) == 2 and ratio is not None:
        return (
            f"the best candidate's ratio on fresh launches was {ratio:.3f} "
            f"({interval[0]:.3f} to {interval[1]:.3f}), which is not a sure gain"
        )
    if noise is not None:
        return f"nothing beat it by more than the noise can hide (noise floor {noise:.1f} %)"
    return "no candidate was shown to be faster"


def facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the labelled lines between the verdict and the next command."""
    found: list[tuple[str, str]] = []
    before, after = document.get("default_exposed_us"), document.get("winner_exposed_us")
    if before is not None and after is not None:
        found.append(("Communication", f"exposed {time_text(before)} -> {time_text(after)} a step"))
    elif before is not None:
        found.append(("Communication", f"exposed {time_text(before)} a step with the default"))
    search, winner = document.get("search_value_us"), document.get("winner_us")
    if search and winner and document.get("verdict") == "profile":
        drift = (winner / search - 1) * 100
        text = f"the search saw {time_text(search)}, fresh launches {time_text(winner)}"
        found.append(("Confirmed", f"{text} ({drift:+.1f} %)"))
    found.append(("Search", _search_text(document)))
    if document.get("baseline"):
        found.append(("Baseline", settings_text(document["baseline"]) + " (default and profile)"))
    for key, label in (("profile", "Profile"), ("report", "Report")):
        if document.get(key):
            found.append((label, clean(document[key], 1000)))
    found += [("One side", _end_text(one)) for one in _ends(document)]
    if document.get("not_searched"):
        hazards = [clean(name) for name in document["not_searched"]]
        command = document.get("not_searched_command") or "collbench sweep " + " ".join(
            [*_spec(document), *(f"--allow {shlex.quote(name)}" for name in hazards)]
        )
        found.append(("Not searched", f"{', '.join(hazards)} (hazards); {clean(command, 1000)}"))
    found += [("Must hold", clean(text, 400)) for text in document.get("must_hold") or ()]
    found += [("Note", clean(text, 400)) for text in document.get("notes") or ()]
    found += [("Warning", clean(text, 400)) for text in document.get("warnings") or ()]
    return found


def _ends(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the profiles for servers that only decode, or only prefill."""
    return [one for one in document.get("profiles") or () if one.get("server") != "both"]


def _end_text(one: Mapping[str, Any]) -> str:
    low, high = one["interval"]
    return (
        f"for servers that only {clean(one['server'])}: {percent_text(one['ratio'])} time "
        f"({low:.3f} to {high:.3f}) with {settings_text(one['settings'])}: "
        f"{clean(one['profile'], 1000)}; {'; '.join(clean(t, 400) for t in one['must_hold'])}"
    )


def _search_text(document: Mapping[str, Any]) -> str:
    parts = [f"{document.get('trials', 0)} trials"]
    if document.get("trials_reused"):
        parts.append(f"{document['trials_reused']} of them reused")
    if document.get("seconds") is not None:
        parts.append(f"in {duration_text(document['seconds'])}")
    text = " ".join(parts) + f": {outcomes_text(document.get('outcomes') or {})}"
    if document.get("noise_pct") is not None:
        text += f"; noise floor {document['noise_pct']:.1f} %"
    if document.get("visible_pct") is not None:
        text += f", so that only gains above {document['visible_pct']:.1f} % can be seen"
    return text + (f"; backend {clean(document['backend'])}" if document.get("backend") else "")


def _spec(document: Mapping[str, Any]) -> list[str]:
    return [shlex.quote(clean(document["spec"]))] if document.get("spec") else []


def next_command(document: Mapping[str, Any]) -> str:
    """Return the command that comes next: launch with the profile, else look at what runs.

    Kept defaults never end in a hazard: that command stands under "Not searched" for who wants it.
    """
    if document.get("verdict") == "profile" and document.get("profile"):
        return f"collbench run {shlex.quote(clean(document['profile'], 1000))} -- CMD..."
    return "collbench status"
