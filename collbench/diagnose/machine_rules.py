"""Topology, peer access, placement and links: what is wrong with the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collbench.diagnose.link_rules import judge_links, narrow_link, narrow_uplink, slow_link
from collbench.findings import Finding
from collbench.readers import Given, Reading
from collbench.readers.lspci import translates
from collbench.readers.pcie_query import faults
from collbench.readers.sysfs_links import Device, links_above


def judge_topology(reading: Reading, given: Given) -> list[Finding]:
    """Return whether the GPUs are those of the stored profile."""
    facts = reading.facts
    return gpu_set(facts["gpus"], facts.get("numa"), given, reading.line("matrix"))


def gpu_set(
    count: int, numa: Sequence[Any] | None, given: Given, line: int | None = None
) -> list[Finding]:
    """Return `topo.gpu_set_changed` where number or nodes of the GPUs are not as stored."""
    stored = given.stored.get("gpus")
    wanted = len(stored) if isinstance(stored, Sequence) and not isinstance(stored, str) else stored
    nodes = given.stored.get("numa")
    evidence = ""
    if isinstance(wanted, int) and wanted != count:
        evidence = f"{count} GPUs, the profile was made with {wanted}"
    elif (
        isinstance(nodes, Sequence)
        and numa is not None
        and len(nodes) == len(numa)
        and None not in numa
        and None not in nodes
        and list(nodes) != list(numa)
    ):
        evidence = f"GPUs on nodes {list(numa)}, the profile was made with {list(nodes)}"
    if not evidence:
        return []
    return [
        Finding(
            code="topo.gpu_set_changed",
            line=line,
            evidence=evidence,
            next="`nvidia-smi -L` and dmesg for a lost card; a profile is valid for one set of "
            "GPUs: tune again with `collbench sweep`",
        )
    ]


def judge_peers(reading: Reading, given: Given) -> list[Finding]:
    """Return pairs without a grant of the driver."""
    found = gpu_set(reading.facts["gpus"], None, given, reading.line("matrix"))
    for matrix in (reading, *reading.signs.get("others", ())):
        facts = matrix.facts
        # NVLink and atomics are capabilities of their own: without them peers still have access.
        if facts["denied_pairs"] and facts["op"] not in ("n", "a"):
            return [*found, _denied(facts, matrix.line("matrix"))]
    return found


def _denied(facts: Mapping[str, Any], line: int | None) -> Finding:
    """Return the finding on pairs that a matrix of peer access denies."""
    denied = facts["denied_pairs"]
    i, j = denied[0]
    said = {facts["matrix"][i][j], facts["matrix"][j][i]} - {"OK"}
    return Finding(
        code="p2p.disabled",
        line=line,
        evidence=f"{len(denied)} pairs without access, first {i} and {j}: "
        + ", ".join(sorted(said)),
        next="NCCL stages these pairs through host memory; a driver or BIOS setting may "
        "grant access, a grant alone does not prove that data arrives",
    )


def judge_affinity(reading: Reading, given: Given) -> list[Finding]:
    """Return workers whose CPUs all belong to another node than their GPU."""
    facts = reading.facts
    found = gpu_set(facts["gpus"], facts["numa"], given, reading.line("matrix"))
    late = facts["misbound_ranks"]
    if late:
        found.append(misbinding(late, facts["worker_cpus"], reading.line(f"rank:{late[0]}")))
    return found


def misbinding(ranks: Sequence[int], cpus: Mapping[str, str], line: int | None) -> Finding:
    """Return the finding on ranks that run beside their GPU's node."""
    where = cpus.get(str(ranks[0]))
    return Finding(
        code="topo.numa_misbinding",
        line=line,
        evidence=f"rank {', '.join(map(str, ranks))} may run on "
        + (f"CPUs {where} only, " if where else "CPUs of another node only, ")
        + "none of them on its GPU's node",
        next="bind each worker to its GPU's node (`numactl --cpunodebind`, the server's NUMA "
        "option), or drop the wrong pinning",
    )


def judge_query(reading: Reading, given: Given) -> list[Finding]:
    """Return narrow and slow links of cards, and another driver."""
    found = []
    stored, driver = given.stored.get("driver"), reading.facts["driver"]
    if stored and driver and str(stored) != driver:
        found.append(
            Finding(
                code="stack.driver_changed",
                line=reading.line("driver"),
                evidence=f"driver {driver}, the profile was made with {stored}",
                next="`collbench check PROFILE`, and tune again if it no longer helps",
            )
        )
    gpus = reading.signs["gpus"]
    found += gpu_set(reading.signs["attached"], None, given)
    narrow = [gpu for gpu in gpus if "width" in faults(gpu)]
    slow = [gpu for gpu in gpus if "generation" in faults(gpu)]
    if narrow:
        found.append(
            narrow_link(
                ", ".join(f"{g['bus']} x{g['width_current']} of x{g['width_max']}" for g in narrow),
                reading.line(f"gpu:{narrow[0]['bus']}"),
            )
        )
    if slow:
        found.append(
            slow_link(
                ", ".join(
                    f"{g['bus']} generation {g['gen_current']} of {g['gen_max']}" for g in slow
                ),
                reading.line(f"gpu:{slow[0]['bus']}"),
            )
        )
    return found


def judge_lspci(reading: Reading, given: Given) -> list[Finding]:
    """Return redirecting ports, address translation, and links with lost lanes."""
    facts = reading.facts
    found = []
    ports = facts["redirecting"]
    if ports:
        found.append(
            Finding(
                code="p2p.acs_redirect",
                line=reading.line(f"acs:{ports[0]}"),
                evidence=f"ACSCtl of {', '.join(ports[:8])} has ReqRedir+ or CmpltRedir+",
                next="clear it with setpci (lost at reboot) or in the BIOS; in a virtual machine "
                "it has to stay",
            )
        )
    words = facts["cmdline"] or {}
    if translates(words):
        said = " ".join(f"{name}={value}" for name, value in words.items())
        found.append(
            Finding(
                code="p2p.iommu_translation",
                line=reading.line("cmdline"),
                evidence=f"kernel command line: {said}",
                next="boot with iommu=pt, or switch the IOMMU off where peers need no isolation",
            )
        )
    return found + judge_links(reading)


def judge_sysfs(reading: Reading, given: Given) -> list[Finding]:
    """Return links above a GPU that carry less than its own, and lost lanes or speed of its own."""
    devices: dict[str, Device] = reading.signs["devices"]
    loaded = reading.signs["loaded"]
    found = gpu_set(len(reading.facts["gpus"]), None, given)
    for bdf, facts in reading.facts["gpus"].items():
        gpu = devices[bdf]
        upper = links_above(gpu, devices)[0][0]
        own = gpu.link
        best = [end.best for end in (gpu, upper) if end is not None and end.best]
        if own and best:
            lanes, speed = min(b[1] for b in best), min(b[0] for b in best)
            if own[1] < lanes:
                found.append(narrow_link(f"{bdf} x{own[1]} of x{lanes}", gpu.line))
            if own[0] < speed and loaded:
                found.append(slow_link(f"{bdf} {own[0]} of {speed} GT/s", gpu.line))
        narrowest = facts["narrowest_link"]
        if narrowest and own and _counts(facts, gpu, loaded):
            upper_end, lower = narrowest
            evidence = (
                f"link {upper_end} to {lower} runs {facts['effective'][0]} GT/s "
                f"x{facts['effective'][1]}, {bdf} itself {own[0]} GT/s x{own[1]}"
            )
            where = reading.line(f"dev:{upper_end}", f"dev:{lower}")
            found.append(narrow_uplink(evidence, where))
    return found


def _counts(facts: Mapping[str, Any], gpu: Device, loaded: bool) -> bool:
    """Return whether a slower link above is a fault: lanes always, speed only at work."""
    speed, lanes = facts["effective"]
    own = gpu.link or (0.0, 0)
    awake = gpu.best is not None and own[0] >= gpu.best[0]
    return lanes < own[1] or (speed < own[0] and (loaded or awake))
