"""Where a server's workers may run, beside the matrix of the machine: ps and taskset."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from collbench.readers import Given, Reading, UnreadableError
from collbench.readers.cpu_lists import cpus_of, list_of_mask
from collbench.readers.text import Line, Section, lines_of
from collbench.readers.topology import topo_m_reading

_TITLE = re.compile(r"(?:sglang::scheduler|VLLM::Worker|[\w.-]{1,40}::(?:scheduler|Worker))(\S*)")
_SINGLE = re.compile(r"VLLM::EngineCore(?:_DP(\d+))?(?=\s|$)")
_PART = re.compile(r"_(DP|PP|ATTN_CP|PCP|DCP|MOE_DP|TP|EP)(\d{1,4})")
_LIST = re.compile(r"pid (\d{1,10})'s current affinity list: (\S{1,4096})")
_MASK = re.compile(r"pid (\d{1,10})'s current affinity mask: ([0-9a-fA-F,]{1,4096})")
_STATUS_PID = re.compile(r"(?:Pid:|NSpid:)\s+(\d{1,10})")
_ALLOWED = re.compile(r"(?:/proc/(\d{1,10})/\S*status:)?Cpus_allowed_list:\s+(\S{1,4096})")
_STATUS_PATH = re.compile(r"/proc/(\d{1,10})/(?:\S*/)?status$")


def workers(lines: Iterable[Line]) -> dict[int, tuple[int, int]]:
    """Return rank -> (pid, line) of the workers in a process listing.

    A rank is the number after TP where those are different for all workers, else its place among
    (DP, PP, TP). Launchers, detokenizers and tokenizers are no workers.
    """
    found: dict[tuple[int, int, int], tuple[int, int]] = {}
    single: dict[tuple[int, int, int], tuple[int, int]] = {}
    column = 0
    for line in lines:
        words = line.text.split()
        if "PID" in words:
            column = words.index("PID")
            continue
        title = _TITLE.search(line.text)
        lone = None if title else _SINGLE.search(line.text)
        pid = _pid(words, column)
        if pid is None or not (title or lone):
            continue
        if title:
            parts = {name: int(number) for name, number in _PART.findall(title[1])}
            key = (parts.get("DP", 0), parts.get("PP", 0), parts.get("TP", 0))
            found.setdefault(key, (pid, line.number))
        elif lone:
            single.setdefault((int(lone[1] or 0), 0, 0), (pid, line.number))
    chosen = found or single
    ranks = [key[2] for key in chosen]
    if len(set(ranks)) == len(ranks):
        return {key[2]: value for key, value in sorted(chosen.items())}
    sizes = [max(key[i] for key in chosen) + 1 for i in range(3)]
    return {
        (dp * sizes[1] + pp) * sizes[2] + tp: value
        for (dp, pp, tp), value in sorted(chosen.items())
    }


def _pid(words: list[str], column: int) -> int | None:
    for at in (column, 0, 1):
        if at < len(words) and words[at].isascii() and words[at].isdigit():
            return int(words[at])
    return None


def allowed_cpus(lines: Iterable[Line], name: str = "") -> dict[int, str]:
    """Return pid -> CPUs from taskset, or from ``/proc/PID/status``, printed or by grep.

    Args:
        lines: The text.
        name: Of its section, which may be ``/proc/PID/status``.
    """
    found: dict[int, str] = {}
    named = _STATUS_PATH.search(name)
    pid: int | None = int(named[1]) if named else None
    for line in lines:
        if match := _LIST.search(line.text):
            found[int(match[1])] = match[2]
        elif match := _MASK.search(line.text):
            listed = list_of_mask(match[2])
            if listed:
                found[int(match[1])] = listed
        elif match := _STATUS_PID.match(line.text):
            pid = int(match[1])
        elif match := _ALLOWED.match(line.text):
            of = int(match[1]) if match[1] else pid
            if of is not None:
                found[of] = match[2]
    return found


def misbound(
    cpus: Mapping[int, str], topology: Mapping[str, Any], rank_gpu: Mapping[str, int]
) -> list[int]:
    """Return the ranks whose allowed CPUs all lie outside those of their GPU.

    Where the CPUs of a GPU's own node are not known, those of the other nodes may tell.
    """
    near_by_gpu = cpus_of_gpus(topology)
    numa = topology["numa"] or []
    found = []
    for rank, text in cpus.items():
        gpu = rank_gpu.get(str(rank), rank)
        near, allowed = near_by_gpu.get(gpu), cpus_of(text)
        if not allowed:
            continue
        if near is not None:
            outside = not allowed & near
        else:
            node = numa[gpu] if 0 <= gpu < len(numa) else None
            far = (c for other, c in near_by_gpu.items() if numa[other] not in (None, node))
            outside = node is not None and allowed <= frozenset().union(*far)
        if outside:
            found.append(rank)
    return sorted(found)


def cpus_of_gpus(facts: Mapping[str, Any]) -> dict[int, frozenset[int]]:
    """Return GPU -> its CPUs; an empty field is filled from a GPU of the same node."""
    lists = facts["cpu_affinity"] or []
    numa = facts["numa"] or [None] * len(lists)
    known = {i: found for i, text in enumerate(lists) if text and (found := cpus_of(text))}
    of_node = {numa[i]: found for i, found in known.items() if numa[i] is not None}
    return {
        i: known.get(i) or of_node[numa[i]]
        for i in range(len(lists))
        if i in known or numa[i] in of_node
    }


def affinity_reading(
    matrix: Section, listings: Sequence[Section], affinities: Sequence[Section], given: Given
) -> Reading:
    """Return the facts of matrix, process listing and affinities together.

    Args:
        matrix: Of ``nvidia-smi topo -m``.
        listings: What names the workers and their pids.
        affinities: What names the CPUs that a pid may use.
        given: Supplies `rank_gpu`.

    Raises:
        UnreadableError: the matrix cannot be read, or no worker is listed.
    """
    topology = topo_m_reading(matrix)
    listed = workers(line for section in listings for line in lines_of(section))
    if not listed:
        raise UnreadableError("no worker in the process listing")
    by_pid: dict[int, str] = {}
    for section in affinities:
        by_pid |= allowed_cpus(lines_of(section), section.name)
    cpus = {rank: by_pid[pid] for rank, (pid, _) in listed.items() if pid in by_pid}
    facts = {
        "gpus": topology.facts["gpus"],
        "numa": topology.facts["numa"],
        "worker_pids": {str(rank): pid for rank, (pid, _) in listed.items() if rank in cpus},
        "worker_cpus": {str(rank): text for rank, text in cpus.items()},
        "misbound_ranks": misbound(cpus, topology.facts, given.rank_gpu),
    }
    lines = {f"rank:{rank}": line for rank, (_, line) in listed.items()}
    return Reading(kind="topo_affinity", facts=facts, lines=lines | topology.lines)
