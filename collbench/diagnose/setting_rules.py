"""What NCCL is going to make of settings that a file holds, before anything is started."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from collbench.findings import Finding
from collbench.readers import Given
from collbench.readers.text import printable

_CODES = (
    "nccl.invalid_value",
    "nccl.algo_unavailable",
    "nccl.ll128_forced",
    "nccl.min_over_max",
    "nccl.unknown_variable",
)
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]+")


def judge_settings(
    values: Mapping[str, str], given: Given, line_of: Callable[[str], int | None]
) -> list[Finding]:
    """Return what the library that reads the values refuses, misreads or is endangered by.

    Args:
        values: As the process gets them; those with quotes are judged by what stands in them.
        given: Supplies the version of that library; unknown, it is taken as current.
        line_of: Name -> line of the file.
    """
    from collbench.knobs import parse_version, registry
    from collbench.knobs.rules import check_settings

    knobs = registry()
    judged = {
        name: value
        for name, value in values.items()
        if value
        and name in knobs
        and knobs[name].library == "nccl"
        and knobs[name].type != "path"
        # NCCL reads 0x10 as 16, and a level that is a number, as they were meant.
        and not _HEXADECIMAL.fullmatch(value)
        and not (name == "NCCL_P2P_LEVEL" and value.isdigit())
    }
    version = parse_version(given.nccl_version) if given.nccl_version else ()
    found: dict[str, Finding] = {}
    for fault in check_settings(judged, version):
        if fault.code not in _CODES or fault.code in found:
            continue
        if fault.code == "nccl.algo_unavailable" and () < version < (2, 24):
            # Older versions run such a call on Ring.
            continue
        forced = fault.code == "nccl.ll128_forced"
        value = judged[fault.name]
        message = fault.message.removeprefix(f"{value}: ")
        found[fault.code] = Finding(
            code=fault.code,
            confidence="medium" if forced else "high",
            line=line_of(fault.name),
            evidence=f"{fault.name}={printable(value, 60)}: {message}",
            next=fault.next,
        )
    return list(found.values())
