"""What NCCL makes of the lists in NCCL_ALGO and NCCL_PROTO, by version."""

from __future__ import annotations

from collbench.knobs import Knob, Version, lists
from collbench.knobs.fault import Fault, invalid

_WORKS = {
    "AllReduce": {"Tree", "Ring"},
    "AllGather": {"Ring"},
    "ReduceScatter": {"Ring"},
    "Broadcast": {"Ring"},
    "Reduce": {"Ring"},
}
"""Function -> algorithms that work on one machine without NVLink switches."""


def check_list(entry: Knob, value: str, version: Version) -> list[Fault]:
    """Return what is wrong with a list."""
    old = bool(version) and version < (2, 24)
    entries = lists.parse(value)
    faults = []
    if old and (len(entries) > 1 or entries[0].function is not None):
        return [
            invalid(
                entry,
                "lists per function exist since 2.24; older versions then disable everything",
                "give one flat list, or remove the line",
            )
        ]
    if any(character.isspace() for character in value):
        faults.append(invalid(entry, "blanks are not allowed in a list", "remove them"))
    known = {element.lower() for element in entry.elements}
    for index, item in enumerate(entries):
        functions = {function.lower() for function in lists.FUNCTIONS}
        if item.function is None and index > 0:
            text = "all entries but the first need a function: NCCL refuses to start"
            faults.append(invalid(entry, text, "write function:list"))
        elif item.function is not None and item.function.lower() not in functions:
            text = f"{item.function!r} is none of {', '.join(lists.FUNCTIONS)}: NCCL refuses"
            faults.append(invalid(entry, text, "name one of these functions"))
        for name in item.names:
            if name.lower() not in known:
                does = "it is ignored without a word" if old else "NCCL refuses to start"
                text = f"{name!r} is none of {', '.join(entry.elements)}: {does}"
                faults.append(invalid(entry, text, "name one of them"))
    if not faults and entry.name == "NCCL_ALGO":
        faults += _left_without(entry, value, version, old=old)
    return faults


def _left_without(entry: Knob, value: str, version: Version, *, old: bool) -> list[Fault]:
    decided = lists.per_function(value, entry.elements)
    left = [f for f, on in decided.items() if not on & _WORKS[f]]
    if version >= (2, 31):
        left += [function for function in lists.FUNCTIONS if function not in decided]
    if not left:
        return []
    what = "falls back to Ring without a word" if old else "fails at the first such call"
    fix = "ring,tree;allreduce:tree" if version >= (2, 31) else "allreduce:tree"
    return [
        Fault(
            code="nccl.algo_unavailable",
            level="invalid",
            name=entry.name,
            message=f"leaves {', '.join(left)} without an algorithm: {what}",
            next=f"if Tree was meant for AllReduce, write {entry.name}={fix}",
        )
    ]
