"""Readings of the sections of a file, once it is known what they are together."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collbench.readers import Given, Reading, UnreadableError
from collbench.readers.text import Section, csv_fields, lines_of

Sorts = Mapping[str, list[Section]]


def kind_of(sorts: Sorts) -> str:
    """Return the kind of a whole file from the sorts of its sections.

    Raises:
        UnreadableError: nothing in it is known.
    """
    names = set(sorts)
    launch = {name.partition(":")[2] for name in names if name.startswith("launch:")}
    if "topo_m" in names and ("ps" in names or "cpus" in names):
        return "topo_affinity"
    for kind in ("nccl_tests", "nccl_log"):
        if kind in names:
            return kind
    if launch & {"compose", "k8s", "unit", "inspect", "script", "image"}:
        return "launch"
    for kind in (
        "pcie_query",
        "pcie_lspci",
        "pcie_sysfs",
        "topo_p2p",
        "topo_m",
        "serving",
        "e2e",
    ):
        if kind in names:
            return kind
    if launch:
        return "env_file"
    if names == {"cmdline"}:
        return "pcie_lspci"
    raise UnreadableError("of no known kind: no table, log, matrix, launch or timing in it")


def _first(parts: Sequence[Section], sorts: Sorts, *names: str) -> Section:
    for name in names:
        if name in sorts:
            return sorts[name][0]
    return next((section for section in parts if section.text.strip()), parts[0])


def _log(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.nccl_log import NcclLog
    from collbench.readers.nccl_ranks import log_reading
    from collbench.readers.topology import topo_p2p_reading

    log = NcclLog()
    side = {"topo_p2p", "util", "apps", "topo_m"}
    beside = {id(section) for name in side for section in sorts.get(name, ())}
    for section in parts:
        if id(section) not in beside:
            # Where only some lines end in a carriage return, it belongs to what they print.
            some = section.text.count("\r\n") * 2 < section.text.count("\n")
            for line in lines_of(section, keep_returns=some):
                log.feed(line.number, line.text.encode("utf-8", "replace"), line.whole)
    reading = log_reading(log)
    if not (log.messages or log.versions or log.server_version or log.timeout):
        raise UnreadableError("no message of NCCL in it")
    if "topo_p2p" in sorts:
        peers = topo_p2p_reading(sorts["topo_p2p"][0])
        reading.facts["p2p_all_ok"] = not peers.facts["denied_pairs"]
        reading.signs["peers"] = peers
        reading.lines["p2p"] = peers.lines["matrix"]
    if "util" in sorts:
        found = _column(sorts["util"][0], "utilization.gpu")
        reading.facts["gpu_util_after"] = [int(m[0]) for v in found if (m := re.match(r"\d+", v))]
        reading.lines["util"] = sorts["util"][0].start
    if "apps" in sorts:
        pids = _column(sorts["apps"][0], "pid")
        reading.facts["processes_after"] = sum(pid.isdigit() for pid in pids)
    if given.profile is not None:
        _differs(reading, given.profile)
    return reading


def _differs(reading: Reading, profile: Mapping[str, str]) -> None:
    """Add the variables that a rank printed with another value than the wanted one."""
    from collbench.readers.nccl_values import same_value

    found = set()
    for member in reading.signs["ranks"].members:
        for name, seen in member.env.items():
            want = profile.get(name)
            if want is not None and not same_value(want, seen.value, numeric=seen.per_process):
                found.add(name)
    if found:
        reading.facts["differs"] = sorted(found)


def _column(section: Section, name: str) -> list[str]:
    """Return one column of a CSV as nvidia-smi prints it."""
    rows = [
        [cell.strip() for cell in row]
        for row in (csv_fields(line.text) for line in lines_of(section) if line.text.strip())
    ]
    if not rows:
        return []
    at = next((i for i, head in enumerate(rows[0]) if head.startswith(name)), None)
    return [] if at is None else [row[at] for row in rows[1:] if len(row) > at and row[at]]


def _affinity(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.affinity import affinity_reading

    if "topo_m" not in sorts:
        raise UnreadableError("no matrix of nvidia-smi topo -m beside the workers")
    # One paste may hold the listing and the affinities together, and one file each of several.
    topology = sorts["topo_m"][0]
    listing = sorts.get("ps") or sorts.get("cpus") or [topology]
    return affinity_reading(topology, listing, sorts.get("cpus") or listing, given)


def _topo_m(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.topology import topo_m_reading

    return topo_m_reading(_first(parts, sorts, "topo_m"))


def _topo_p2p(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.topology import topo_p2p_reading

    reading = topo_p2p_reading(_first(parts, sorts, "topo_p2p"))
    reading.signs["others"] = [topo_p2p_reading(part) for part in sorts.get("topo_p2p", ())[1:]]
    return reading


def _table(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.nccl_tests import nccl_tests_reading

    reading = nccl_tests_reading(_first(parts, sorts, "nccl_tests"))
    if given.profile is not None:
        _differs(reading, given.profile)
    return reading


def _env_file(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.env_faults import env_file_reading

    files = [*sorts.get("launch:env", ()), *sorts.get("launch:conf", ())]
    reading = env_file_reading(files[0] if files else _first(parts, sorts), given)
    reading.signs["others"] = others = []
    for section in files[1:]:
        # A file of comments alone beside it says nothing.
        with contextlib.suppress(UnreadableError):
            others.append((section.name, env_file_reading(section, given)))
    return reading


def _launch(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.launch.reading import launch_reading

    return launch_reading(parts, given)


def _environ(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.proc_environ import environ_reading

    return environ_reading(parts[0].text.encode("utf-8", "replace"), given)


def _query(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.pcie_query import query_reading

    return query_reading(_first(parts, sorts, "pcie_query"))


def _lspci(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.lspci import kernel_words, lspci_reading

    cmdline = sorts.get("cmdline", [None])[0]
    if "pcie_lspci" not in sorts and cmdline is not None:
        facts: dict[str, Any] = {
            "devices": [],
            "redirecting": [],
            "cmdline": kernel_words(cmdline.text),
        }
        return Reading(kind="pcie_lspci", facts=facts, lines={"cmdline": cmdline.start})
    return lspci_reading(_first(parts, sorts, "pcie_lspci"), cmdline)


def _sysfs(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.sysfs_links import sysfs_reading

    return sysfs_reading(_first(parts, sorts, "pcie_sysfs"))


def _e2e(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.e2e import e2e_reading

    return e2e_reading(_first(parts, sorts, "e2e"))


def _serving(parts: Sequence[Section], sorts: Sorts, given: Given) -> Reading:
    from collbench.readers.serving import serving_reading

    return serving_reading(_first(parts, sorts, "serving"))


READINGS: dict[str, Callable[[Sequence[Section], Sorts, Given], Reading]] = {
    "topo_m": _topo_m,
    "topo_p2p": _topo_p2p,
    "topo_affinity": _affinity,
    "nccl_log": _log,
    "nccl_tests": _table,
    "env_file": _env_file,
    "launch": _launch,
    "proc_environ": _environ,
    "pcie_query": _query,
    "pcie_lspci": _lspci,
    "pcie_sysfs": _sysfs,
    "e2e": _e2e,
    "serving": _serving,
}
