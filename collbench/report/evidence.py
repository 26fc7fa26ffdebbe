"""What a profile's evidence and a sweep's document hold, checked field by field.

Both are files that somebody else may have written or edited: a wrong type is named, with the file,
before anything is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from collbench.job import Run
from collbench.machine import Fingerprint
from collbench.record import validate, validate_run
from collbench.report.story import Ablated, FrontPoint, Guarded


class _Removal(BaseModel):
    dropped: dict[str, str] = {}
    setting: str = ""
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    kept: bool = False
    reason: str = ""


class _Guard(BaseModel):
    case: str
    ratio: float
    verdict: str = ""
    pairs: int = 0


class _Point(BaseModel):
    settings: dict[str, str]
    decode_ratio: float
    prefill_ratio: float
    on_front: bool = True
    knee: bool = False


class Found(BaseModel):
    """The fields of both that a report shows; other fields are kept as they are."""

    model_config = ConfigDict(frozen=True, extra="allow")

    verdict: str | None = None
    profile: str | None = None
    settings: dict[str, str] = {}
    baseline: dict[str, str] = {}
    reference: dict[str, str] = {}
    """What the ratio compares with: empty for the default."""
    default_us: float | None = None
    winner_us: float | None = None
    default_exposed_us: float | None = None
    winner_exposed_us: float | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    search_value_us: float | None = None
    noise_pct: float | None = None
    trials: int | None = None
    outcomes: dict[str, int] = {}
    seconds: float | None = None
    not_searched: list[str] = []
    not_searched_command: str = ""
    backend: str = ""
    reason: str | None = None
    notes: list[str] = []
    must_hold: list[str] = []
    warnings: list[str] = []
    spec: str = ""
    workload: str | None = None
    nranks: int = 0
    machine: Fingerprint | None = None
    ablation: list[_Removal] = []
    guard: list[_Guard] = []
    front: list[_Point] = []
    proof: dict[str, Any] | None = None

    def removals(self) -> list[Ablated]:
        """Return the ablation."""
        return [
            Ablated(
                setting=" ".join(f"{n}={v}" for n, v in item.dropped.items()) or item.setting,
                ratio=item.ratio,
                interval=item.interval,
                kept=item.kept,
                note=item.reason,
            )
            for item in self.ablation
        ]

    def guards(self) -> list[Guarded]:
        """Return the guarded cases of the confirmation."""
        return [
            Guarded(case=g.case, ratio=g.ratio, verdict=g.verdict, pairs=g.pairs)
            for g in self.guard
        ]

    def points(self) -> list[FrontPoint]:
        """Return the front of decode and prefill."""
        return [
            FrontPoint(
                settings=p.settings,
                decode_ratio=p.decode_ratio,
                prefill_ratio=p.prefill_ratio,
                on_front=p.on_front,
                knee=p.knee,
            )
            for p in self.front
        ]

    def proofs(self, where: str) -> list[Run]:
        """Return the proof run as far as it was kept: what NCCL chose. Never its times."""
        plain = self.proof
        if plain is None or plain.get("outcome") != "ok":
            return []
        kept: dict[str, Any] = {
            "job_id": "proof",
            "settings": self.settings,
            "outcome": "ok",
            "choices": plain.get("choices") or [],
            "transports": plain.get("transports") or {},
            "env_seen": plain.get("env_seen") or {},
        }
        return [validate_run(kept, where=f"{where}: proof")]


def found_in(plain: Mapping[str, Any], where: str) -> Found:
    """Return evidence or a document with every field checked.

    Raises:
        CollbenchError: a field has a wrong type; it is named.
    """
    return validate(Found, dict(plain), where=where)
