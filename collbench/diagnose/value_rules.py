"""Values of variables in an NCCL log: quoted, refused, misread, overwritten, dangerous."""

from __future__ import annotations

import re
from typing import Any

from collbench.findings import Finding
from collbench.readers import Given, Reading
from collbench.readers.nccl_log import NcclLog
from collbench.readers.nccl_ranks import Ranks
from collbench.readers.text import printable

OPTION_WRITES: dict[str, dict[str, str]] = {
    "enable_deterministic_inference": {
        "NCCL_ALGO": "allreduce:tree",
        "NCCL_MIN_NCHANNELS": "8",
        "NCCL_MAX_NCHANNELS": "8",
    },
    "enable_symm_mem": {"NCCL_CUMEM_ENABLE": "1", "NCCL_NVLS_ENABLE": "1"},
    "enable_nccl_nvls": {"NCCL_NVLS_ENABLE": "1"},
    "batch_invariant": {
        "NCCL_LAUNCH_MODE": "",
        "NCCL_COLLNET_ENABLE": "",
        "NCCL_NVLS_ENABLE": "",
        "NCCL_P2P_NET_DISABLE": "",
        "NCCL_MIN_NCHANNELS": "1",
        "NCCL_MAX_NCHANNELS": "1",
        "NCCL_PROTO": "Simple",
        "NCCL_ALGO": "ring,tree;allreduce:tree",
        "NCCL_NTHREADS": "",
        "NCCL_SOCKET_NTHREADS": "",
    },
}
"""Option as the server prints it -> what it writes over a user's value ("": any value)."""


def judge_values(reading: Reading, log: NcclLog, ranks: Ranks, given: Given) -> list[Finding]:
    """Return findings on values as the ranks printed them, and as NCCL refused them."""
    found: list[Finding] = []
    printed = [
        (name, seen) for member in ranks.members for name, seen in sorted(member.env.items())
    ]
    quoted = next((p for p in printed if p[1].value[:1] in ("'", '"')), None)
    token = log.rejected[0]["token"] if log.rejected else None
    if quoted or (token and token[:1] in ("'", '"')):
        name = quoted[0] if quoted else "a list"
        found.append(
            Finding(
                code="env.quotes_kept",
                line=quoted[1].line if quoted else log.rejected[1] if log.rejected else None,
                evidence=f"{name} arrived with its quotes"
                + (f": {printable(quoted[1].value, 60)}" if quoted else ""),
                next="write values without quotes: docker --env-file, kubectl and nccl.conf "
                "keep them",
            )
        )
    returned = next((p for p in printed if p[1].value.endswith("\r")), None)
    if returned:
        found.append(
            Finding(
                code="env.crlf",
                line=returned[1].line,
                evidence=f"{returned[0]} arrived with a carriage return at its end",
                next="save the environment file with LF line ends (`sed -i 's/\\r$//' FILE`)",
            )
        )
    if log.rejected or log.invalid:
        said = log.rejected[0] if log.rejected else {}
        names = ", ".join(sorted(log.invalid))
        found.append(
            Finding(
                code="nccl.invalid_value",
                line=log.rejected[1] if log.rejected else min(log.invalid.values()),
                evidence=f"NCCL refuses {printable(str(said.get('value')), 80)}"
                if said
                else f"NCCL calls the value of {names} invalid",
                next="`collbench profile lint FILE --nccl-version VERSION`",
            )
        )
    elif given.profile:
        found += _misread(printed, given)
    found += _overridden(reading, log, printed, given) + _forced(log, printed, reading)
    return found


def _misread(printed: list[Any], given: Given) -> list[Finding]:
    """Find numbers of which NCCL read only the front: 4M is 4."""
    for name, seen in printed:
        want = (given.profile or {}).get(name, "")
        front = re.match(r"\d+(?=[A-Za-z])(?!0?[xX])", want)
        if seen.per_process and front and front[0] == seen.value:
            return [
                Finding(
                    code="nccl.invalid_value",
                    line=seen.line,
                    evidence=f"{name}={printable(want, 40)} was read as {seen.value}",
                    next="write plain bytes: NCCL knows no suffixes",
                )
            ]
    return []


def _overridden(reading: Reading, log: NcclLog, printed: list[Any], given: Given) -> list[Finding]:
    """Find values that an option of the server is known to write, and that the rank has."""
    differing = set(reading.facts.get("differs", ()))
    for option, line in log.options.items():
        writes = OPTION_WRITES.get(option, {})
        hit = sorted(
            {
                name
                for name, seen in printed
                if name in writes
                and name in differing
                and seen.value == (writes[name] or seen.value)
            }
        )
        if hit:
            return [
                Finding(
                    code="env.overridden_by_server",
                    line=line,
                    evidence=f"{option} makes the server write {', '.join(hit)}",
                    next=f"start the server without {option}, or tune under it "
                    "(`collbench sweep --like SERVER` with these values pinned)",
                )
            ]
    return []


def _forced(log: NcclLog, printed: list[Any], reading: Reading) -> list[Finding]:
    nvlink = log.graph_types & {"NVL", "NVB", "C2C"} or any(
        re.search(r"SXM|HBM3\b|H(?:20|[128]00)$|B[23]00|GB\d00|NVL\d", name)
        for name in log.device_names.values()
    )
    for name, seen in printed:
        if name == "NCCL_PROTO" and not nvlink and forces_ll128(seen.value):
            return [
                Finding(
                    code="nccl.ll128_forced",
                    confidence="high" if log.device_names else "medium",
                    line=seen.line,
                    evidence=f"NCCL_PROTO={printable(seen.value, 60)} switches LL128 on, and "
                    "nothing shows NVLink",
                    next="use LL, Simple or LL,Simple; over PCIe LL128 may corrupt data silently",
                )
            ]
    return []


def forces_ll128(value: str) -> bool:
    """Return whether a value of NCCL_PROTO switches LL128 on: named, or left in by ``^``.

    >>> [forces_ll128(v) for v in ("LL128", "LL,Simple", "^LL", "^LL128", "allreduce:ll128")]
    [True, False, True, False, True]
    """
    for entry in value.lower().strip("\"'").split(";"):
        tokens = entry.rpartition(":")[2]
        named = "ll128" in tokens.lstrip("^").split(",")
        if named != tokens.startswith("^") and tokens:
            return True
    return False
