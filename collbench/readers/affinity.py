"""Where a server's workers may run, beside the matrix of the machine: ps and taskset."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
_ALLOWED = re.compile(r"Cpus_allowed_list:\s+(\S{1,4096})")


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


def allowed_cpus(lines: Iterable[Line]) -> dict[int, str]:
    """Return pid -> CPUs from taskset, or from ``/proc/PID/status``."""
    found: dict[int, str] = {}
    pid: int | None = None
    for line in lines:
        if match := _LIST.search(line.text):
            found[int(match[1])] = match[2]
        elif match := _MASK.search(line.text):
            listed = list_of_mask(match[2])
            if listed:
                found[int(match[1])] = listed
        elif match := _STATUS_PID.match(line.text):
            pid = int(match[1])
        elif (match := _ALLOWED.match(line.text)) and pid is not None:
            found[pid] = match[1]
    return found


def misbound(
    cpus: Mapping[int, str], gpu_cpus: Mapping[int, frozenset[int]], rank_gpu: Mapping[str, int]
) -> list[int]:
    """Return the ranks whose allowed CPUs all lie outside those of their GPU."""
    found = []
    for rank, text in cpus.items():
        near = gpu_cpus.get(rank_gpu.get(str(rank), rank))
        allowed = cpus_of(text)
        if near and allowed and not allowed & near:
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


def affinity_reading(found: Mapping[str, Section], given: Given) -> Reading:
    """Return the facts of matrix, process listing and affinities together.

    Args:
        found: Sections by what they hold: ``topo_m``, ``ps``, ``cpus``.
        given: Supplies `rank_gpu`.

    Raises:
        UnreadableError: the matrix cannot be read, or no worker is listed.
    """
    topology = topo_m_reading(found["topo_m"])
    listed = workers(lines_of(found["ps"])) if "ps" in found else {}
    if not listed:
        raise UnreadableError("no worker in the process listing")
    by_pid = allowed_cpus(lines_of(found["cpus"]))
    cpus = {rank: by_pid[pid] for rank, (pid, _) in listed.items() if pid in by_pid}
    facts = {
        "gpus": topology.facts["gpus"],
        "numa": topology.facts["numa"],
        "worker_pids": {str(rank): pid for rank, (pid, _) in listed.items() if rank in cpus},
        "worker_cpus": {str(rank): text for rank, text in cpus.items()},
        "misbound_ranks": misbound(cpus, cpus_of_gpus(topology.facts), given.rank_gpu),
    }
    lines = {f"rank:{rank}": line for rank, (_, line) in listed.items()}
    return Reading(kind="topo_affinity", facts=facts, lines=lines | topology.lines)
