"""What a library makes of a value: refuses, misreads or ignores it. Standard library only.

`check_value` judges one setting, `check_settings` also what several say together. Rules are those
of the sources named in the registry; without a version, those of current libraries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from collbench.knobs import Knob, Version, knob, registry
from collbench.knobs.fault import Fault, invalid
from collbench.knobs.list_rules import check_list

HAZARDS = {
    "ll128": (
        "nccl.ll128_forced",
        "switches LL128 on, also between GPUs without NVLink: data may be wrong, silently",
    ),
    "p2p": (
        "hazard.p2p",
        "direct peer access where the default avoids it: some machines hang or corrupt data",
    ),
    "graph-mixing": (
        "hazard.graph_mixing",
        "unsafe where captured and eager calls of one communicator overlap",
    ),
    "loads-code": (
        "hazard.loads_code",
        "names a file or library that is loaded or decides for the library",
    ),
}
"""Hazard -> code of its finding, and what it is."""
P2P_NUMBERS = {"0": "LOC", "1": "PIX", "2": "PXB", "3": "PHB", "4": "SYS"}
"""Numbers that NCCL_P2P_LEVEL still takes; widely copied tables give them other meanings."""
_SUFFIXED = re.compile(r"[0-9]+[kKmMgG]")


def check_value(name: str | Knob, value: str, version: Version = ()) -> list[Fault]:
    """Return what is wrong with one setting; an empty list means nothing.

    Args:
        name: A registered variable or its knob.
        value: As it stands in the environment.
        version: Of the library that will read it; empty: unknown, taken as current.

    Raises:
        CollbenchError: the variable is not registered.
    """
    entry = knob(name) if isinstance(name, str) else name
    faults: list[Fault] = []
    if not entry.exists_in(version):
        faults.append(_missing(entry, version))
    if value == "":
        faults.append(invalid(entry, "an empty value changes nothing", "remove the line"))
        return faults
    if entry.type in ("int", "bool", "size"):
        faults += _number(entry, value)
    elif entry.type == "enum":
        faults += _enum(entry, value, version)
    elif entry.type == "list":
        faults += check_list(entry, value, version)
    elif entry.type == "path" and not value.startswith("/"):
        faults.append(invalid(entry, f"{value!r} is not an absolute path", "write it from /"))
    hazard = entry.hazard_of(value)
    if hazard and hazard != "never":
        faults.append(_hazard(entry, value, hazard))
    if _is_default(entry, value, version):
        text = f"{value} is what the library does without it"
        faults.append(
            Fault(
                code="env.equals_default",
                level="notice",
                name=entry.name,
                message=text,
                next="remove the line, unless it pins the value on purpose",
            )
        )
    return faults


def check_settings(settings: Mapping[str, str], version: Version = ()) -> list[Fault]:
    """Return what is wrong with a set of settings: each of them, and together.

    `version` is that of NCCL; variables of other libraries are taken as current. Unregistered
    names are faults here, not errors.
    """
    faults: list[Fault] = []
    for name, value in settings.items():
        entry = registry().get(name)
        if entry is None:
            faults.append(unknown(name))
            continue
        faults += check_value(entry, value, version if entry.library == "nccl" else ())
        for other, needed in entry.requires.items():
            if settings.get(other) != needed:
                faults.append(
                    Fault(
                        code="env.needs_other",
                        level="invalid",
                        name=name,
                        message=f"does nothing without {other}={needed}",
                        next=f"add {other}={needed}",
                    )
                )
    return faults + _pairs(settings)


def unknown(name: str) -> Fault:
    """Return the fault of a name that no registry has, with the nearest that one has."""
    import difflib

    near = difflib.get_close_matches(name, registry(), n=2)
    libraries_own = name.startswith(("NCCL_", "OMPI_MCA_", "MPIR_CVAR_"))
    return Fault(
        code="env.unknown_variable",
        level="invalid" if libraries_own else "notice",
        name=name,
        message="not in the registry; libraries ignore names they do not know without a word",
        next=f"did you mean {' or '.join(near)}?" if near else "see docs/knobs.md for the names",
    )


def _pairs(settings: Mapping[str, str]) -> list[Fault]:
    faults = []
    for low, high, outcome in (
        ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL lowers the minimum to the maximum"),
        ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "the minimum wins"),
    ):
        least, most = settings.get(low, ""), settings.get(high, "")
        if least.isdigit() and most.isdigit() and int(least) > int(most):
            faults.append(
                Fault(
                    code="nccl.min_over_max",
                    level="invalid",
                    name=low,
                    message=f"{low}={least} is above {high}={most}: {outcome}",
                    next=f"make {low} at most {most}",
                )
            )
    return faults


def _number(entry: Knob, value: str) -> list[Fault]:
    words = {"true": "1", "false": "0", "yes": "1", "no": "0", "t": "1", "f": "0"}
    if entry.library == "openmpi":
        if entry.type == "bool" and value.lower() in words:
            value = words[value.lower()]
        elif entry.type == "size" and _SUFFIXED.fullmatch(value):
            value = str(int(value[:-1]) << {"k": 10, "m": 20, "g": 30}[value[-1].lower()])
    match = re.match(r"[ \t]*([-+]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)?", value)
    assert match is not None
    digits = match[2] or ""
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits.startswith("0") and digits[1:] else 10
    number = int(digits or "0", base) * (-1 if match[1] == "-" else 1)
    if match.end() != len(value) or not digits:
        return [
            invalid(
                entry,
                f"{value!r} is read as {number}: the rest is dropped",
                "write the number out, in digits",
                effective=str(number),
            )
        ]
    if base != 10:
        kind = "octal" if base == 8 else "hexadecimal"
        return [
            invalid(
                entry,
                f"{value} is read as {kind}: {number}",
                f"write {number}, or the number that was meant, without a leading 0",
                effective=str(number),
            )
        ]
    low, high = (0, 1) if entry.type == "bool" else (entry.minimum, entry.maximum)
    if (low is not None and number < low) or (high is not None and number > high):
        return [invalid(entry, f"{number} is outside {low}..{high}", "choose a value inside")]
    if number % entry.multiple:
        return [
            invalid(
                entry,
                f"{number} is not a multiple of {entry.multiple}: NCCL uses {high} instead",
                f"choose one of {', '.join(entry.values) or f'the multiples of {entry.multiple}'}",
                effective=str(high),
            )
        ]
    return []


def _enum(entry: Knob, value: str, version: Version) -> list[Fault]:
    if entry.name == "NCCL_P2P_LEVEL" and value.isdigit():
        name = P2P_NUMBERS.get(value, "SYS")
        return [
            invalid(
                entry,
                f"the number {value} means {name} here; copied tables say otherwise",
                f"write NCCL_P2P_LEVEL={name}, or the level that was meant",
                effective=name,
            )
        ]
    allowed = [v.lower() if entry.ignore_case else v for v in entry.values]
    if (value.lower() if entry.ignore_case else value) not in allowed:
        near = next((v for v in entry.values if v.lower() == value.lower()), None)
        return [
            invalid(
                entry,
                f"{value!r} is none of {', '.join(entry.values)}: it is ignored without a word",
                f"write {near}: upper and lower case matter" if near else "choose one of them",
            )
        ]
    since = entry.value_since.get(value, ())
    if version and since > version:
        shown = ".".join(map(str, since))
        return [invalid(entry, f"{value} exists since {shown} only", "choose another value")]
    return []


def _is_default(entry: Knob, value: str, version: Version) -> bool:
    if entry.default is None or value.lower() != entry.default.lower():
        return False
    return not (version and version < entry.default_since)


def _hazard(entry: Knob, value: str, hazard: str) -> Fault:
    code, text = HAZARDS[hazard]
    keep = f"keep it only if the profile was made with --allow {hazard}"
    fix = "write LL, Simple, LL,Simple or ^LL128" if hazard == "ll128" else keep
    return Fault(code=code, level="hazard", name=entry.name, message=f"{value}: {text}", next=fix)


def _missing(entry: Knob, version: Version) -> Fault:
    shown = ".".join(map(str, version))
    if version < entry.since:
        when = f"exists since {'.'.join(map(str, entry.since))}"
    else:
        when = f"was removed in {'.'.join(map(str, entry.until))}"
    return Fault(
        code="nccl.unknown_variable",
        level="invalid",
        name=entry.name,
        message=f"{when}: {shown} ignores it without a word",
        next="remove the line",
    )
