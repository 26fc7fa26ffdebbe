"""The roll call: every rank says where it is, and a missing or doubled one is named."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from typing import Any

from collbench.errors import CollbenchError, Exit
from collbench.ranks.launchers import Launch
from collbench.ranks.stores import TorchStore

_READ_S = 10.0


def call_roll(launch: Launch, store: TorchStore, name: str, meet_s: float) -> tuple[str, ...]:
    """Tell every rank the host of every rank; name the ranks that do not come."""
    me = json.dumps({"host": name, "pid": os.getpid()})
    there = store.claim(f"hello/{launch.rank}", me)
    if there != me:
        raise CollbenchError(
            f"two processes say that they are rank {launch.rank}: {there} and {me}",
            fix="give each launch a MASTER_PORT or --rdzv-id of its own; start each rank once",
            code=Exit.FAILED,
        )
    if launch.rank == 0:
        roster = _gather(launch, store, meet_s)
        store.set("roster", json.dumps(roster))
    else:
        text = store.get("roster", timeout_s=meet_s + 5.0)
        if text is None:
            raise CollbenchError(
                f"rank 0 has not answered for {meet_s:g} s",
                fix="look at its output",
                code=Exit.FAILED,
            )
        roster = json.loads(text)
    if roster["missing"]:
        _wait_for_readers(launch, store, roster["missing"])
        raise CollbenchError(
            f"of {launch.world_size} ranks, missing after {meet_s:g} s: {_few(roster['missing'])}; "
            f"there: {_counts(roster['hosts'])}",
            fix="start one process per rank; see the launcher's output of the missing ones",
            code=Exit.FAILED,
        )
    hosts = tuple(str(host) for host in roster["hosts"])
    if launch.rank == 0 and len(set(Counter(hosts).values())) > 1:
        print(
            f"collbench: uneven nodes: {_counts(hosts)}; numbers compare with launches of the "
            "same shape only",
            file=sys.stderr,
        )
    return hosts


def _wait_for_readers(launch: Launch, store: TorchStore, missing: list[int]) -> None:
    """Let rank 0, who may host the store, stay until the others have read who is missing."""
    if launch.rank != 0:
        store.set(f"seen/{launch.rank}", "1")
        return
    end = time.monotonic() + _READ_S
    for rank in range(1, launch.world_size):
        if rank not in missing:
            store.get(f"seen/{rank}", timeout_s=max(0.05, end - time.monotonic()))


def _gather(launch: Launch, store: TorchStore, meet_s: float) -> dict[str, Any]:
    end = time.monotonic() + meet_s
    hosts: list[str] = []
    missing: list[int] = []
    for rank in range(launch.world_size):
        text = store.get(f"hello/{rank}", timeout_s=max(0.05, end - time.monotonic()))
        if text is None:
            missing.append(rank)
        else:
            hosts.append(str(json.loads(text)["host"]))
    return {"hosts": hosts, "missing": missing}


def _few(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return shown + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


def _counts(hosts: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"{host} {count}" for host, count in Counter(hosts).items())
