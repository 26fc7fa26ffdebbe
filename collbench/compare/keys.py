"""What two records must have in common for their times to be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from collbench.job import RankFacts
from collbench.record import RunRecord


@dataclass(frozen=True, slots=True)
class Difference:
    """A key on which two records differ."""

    key: str
    a: str
    b: str


def _ranks(record: RunRecord) -> tuple[RankFacts, ...]:
    """Return the ranks of the first launch that has them all."""
    full = (run.ranks for run in record.launches if len(run.ranks) == record.nranks)
    return next(full, ())


def _devices(record: RunRecord) -> str | None:
    devices = [fact.device for fact in sorted(_ranks(record), key=lambda fact: fact.rank)]
    names = devices or [gpu.name for gpu in record.machine.gpus]
    kinds = {name: names.count(name) for name in dict.fromkeys(names)}
    return ", ".join(f"{count} x {name}" for name, count in kinds.items()) or None


def _library(record: RunRecord) -> str | None:
    loaded = sorted({fact.library for fact in _ranks(record) if fact.library})
    return ", ".join(loaded) or record.machine.library


def _nodes(record: RunRecord) -> str | None:
    ranks = _ranks(record)
    return str(len({fact.host for fact in ranks})) if ranks else None


def _binding(record: RunRecord) -> str | None:
    bound = sorted({fact.bound for fact in _ranks(record)} - {"unknown"})
    return ", ".join(bound) or None


def _gpus(record: RunRecord) -> str | None:
    buses = [fact.pci for fact in _ranks(record) if fact.pci]
    return ", ".join(sorted(buses)) or None


def _conf(record: RunRecord) -> str:
    files = record.machine.nccl_conf
    return ", ".join(f"{path} {digest[:12]}" for path, digest in sorted(files.items())) or "none"


def _pool(record: RunRecord) -> str:
    plan = record.job.plan
    chain = "by size" if plan.chain is None else str(plan.chain)
    if record.backend == "nccl":
        return f"pool {plan.pool_bytes} bytes, chain {chain}"
    return f"pool {plan.pool_bytes} bytes, batch {plan.batch_us:g} us"


def _skew(record: RunRecord) -> str:
    skew = record.job.skew
    return "none" if skew is None else f"rank {skew.rank} {skew.delay_us:g} us late"


KEYS: Mapping[str, Callable[[RunRecord], str | None]] = {
    "method": lambda record: str(record.method),
    "backend": lambda record: record.backend,
    "nranks": lambda record: str(record.nranks),
    "nodes": _nodes,
    "machine": lambda record: record.machine.host or None,
    "cpu": lambda record: record.machine.cpu or None,
    "devices": _devices,
    "gpus": _gpus,
    "driver": lambda record: record.machine.driver,
    "torch": lambda record: record.machine.torch,
    "library": _library,
    "nccl_conf": _conf,
    "cmdline": lambda record: record.machine.cmdline,
    "binding": _binding,
    "plan": _pool,
    "skew": _skew,
}
"""Key -> how it is read from a record; None where the record does not say."""


def facts(record: RunRecord) -> dict[str, str | None]:
    """Return every compared key of a record."""
    return {key: read(record) for key, read in KEYS.items()}


def differences(a: RunRecord, b: RunRecord) -> tuple[list[Difference], list[str]]:
    """Return the keys on which two records differ, and those that one of them does not say."""
    found, unsaid = [], []
    mine, other = facts(a), facts(b)
    for key in KEYS:
        left, right = mine[key], other[key]
        if left is None or right is None:
            if left != right:
                unsaid.append(key)
        elif left != right:
            found.append(Difference(key, left, right))
    return found, unsaid


def changed_settings(a: RunRecord, b: RunRecord) -> list[Difference]:
    """Return the variables whose values differ: what the comparison is about, not an obstacle."""
    left = {**a.pinned, **a.baseline, **a.settings}
    right = {**b.pinned, **b.baseline, **b.settings}
    return [
        Difference(name, left.get(name, "unset"), right.get(name, "unset"))
        for name in sorted(set(left) | set(right))
        if left.get(name) != right.get(name)
    ]
