"""What NCCL said it chose in a proof run, in the words of a run record."""

from __future__ import annotations

from dataclasses import dataclass, field

from collbench.job import Choice
from collbench.readers.nccl_log import NcclLog
from collbench.readers.nccl_seen import COLLECTIVES


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """Fields of a run that only NCCL's own log can fill."""

    choices: tuple[Choice, ...] = ()
    transports: dict[str, int] = field(default_factory=dict)
    """Transport -> connections, over all ranks."""
    env_seen: dict[str, str] = field(default_factory=dict)
    """Variables that a rank printed as read; where ranks differ, every value, with ``|``."""


def proof_of(text: str) -> Proof:
    """Return what the logs of a launch's ranks say, one after the other in `text`."""
    log = NcclLog()
    for number, line in enumerate(text.encode("utf-8", "replace").split(b"\n"), start=1):
        log.feed(number, line)
    values: dict[str, dict[str, None]] = {}
    for variables in log.env_of.values():
        for name, seen in variables.items():
            for value in (seen.value, *sorted(seen.others)):
                values.setdefault(name, {})[value] = None
    return Proof(
        choices=tuple(
            Choice(
                collective=COLLECTIVES.get(seen.collective, seen.collective)
                if seen.collective
                else None,
                size_bytes=seen.size_bytes,
                algorithm=seen.algorithm,
                protocol=seen.protocol,
                channels=seen.channels,
                count=seen.count,
            )
            for seen in log.choices.values()
        ),
        transports=dict(log.transports),
        env_seen={name: "|".join(found) for name, found in sorted(values.items())},
    )
