"""The end of a check in plain words, from its document. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collbench.terminal.words import clean, time_text, wrap

_SENTENCES = {
    "as_recorded": "As recorded: the profile still helps as much as when it was confirmed.",
    "regressed": "Regressed: the profile is not what its record says.",
    "no_longer_helps": "No longer helps: with the profile it is not surely faster any more.",
    "not_comparable": "Not comparable: this is not the machine or the stack of the record.",
}
_NEXT = {
    "as_recorded": "nothing to do; check again after a change of driver, NCCL or BIOS",
    "regressed": "collbench diagnose --against {profile} --measure",
    "no_longer_helps": "collbench sweep, which starts from this profile's settings",
    "not_comparable": "collbench sweep, to confirm settings for what runs here now",
}


def summary(document: Mapping[str, Any]) -> str:
    """Return the summary of a check: verdict first, the 2x2, the next command last."""
    verdict = str(document["verdict"])
    lines = [_SENTENCES[verdict], ""]
    lines += [wrap(clean(reason, 400), first="  ") for reason in document["reasons"]]
    lines += ["", f"{'':10}{'then':>12}{'now':>12}"]
    for arm in ("default", "profile"):
        times = document["times_us"][arm]
        now = time_text(times["now"]) if times["now"] is not None else "-"
        lines.append(f"{arm:10}{time_text(times['then']):>12}{now:>12}")
    ratio, interval = document["ratio"], document["interval"]
    if ratio is not None:
        lines.append(
            f"{'ratio':10}{document['recorded_ratio']:>12.3f}{ratio:>12.3f}  "
            f"(95 % interval {interval[0]:.3f} to {interval[1]:.3f}, {document['pairs']} pairs)"
        )
    lines += [f"warning: {clean(text, 400)}" for text in document["warnings"]]
    lines += ["", f"Next: {_NEXT[verdict].format(profile=document['profile'])}", ""]
    return "\n".join(lines)
