"""The evidence of a profile, or of a sweep's document, as the report shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collbench.job import Run
from collbench.record import validate_run
from collbench.report.story import Ablated, FrontPoint, Guarded


def ablation_of(plain: Any) -> list[Ablated]:
    """Return the ablation as a profile's evidence or a sweep's document holds it."""
    found = []
    for item in plain if isinstance(plain, list) else ():
        if not isinstance(item, dict):
            continue
        between = item.get("interval")
        pair = (
            (float(between[0]), float(between[1]))
            if isinstance(between, list | tuple) and len(between) == 2
            else None
        )
        ratio = item.get("ratio")
        found.append(
            Ablated(
                setting=_removed(item),
                ratio=float(ratio) if isinstance(ratio, int | float) else None,
                interval=pair,
                kept=bool(item.get("kept")),
                note=str(item.get("note") or item.get("reason") or ""),
            )
        )
    return found


def _removed(item: Mapping[str, Any]) -> str:
    dropped = item.get("dropped")
    if isinstance(dropped, dict):
        return " ".join(f"{name}={value}" for name, value in dropped.items()) or "?"
    return str(dropped or item.get("setting") or "?")


def front_of(plain: Any) -> list[FrontPoint]:
    """Return the front of decode and prefill as a profile's evidence or a document holds it."""
    found = []
    for item in plain if isinstance(plain, list) else ():
        if not isinstance(item, dict) or not isinstance(item.get("settings"), dict):
            continue
        decode, prefill = item.get("decode_ratio"), item.get("prefill_ratio")
        if isinstance(decode, int | float) and isinstance(prefill, int | float):
            found.append(
                FrontPoint(
                    settings={str(k): str(v) for k, v in item["settings"].items()},
                    decode_ratio=float(decode),
                    prefill_ratio=float(prefill),
                    on_front=bool(item.get("on_front", True)),
                    knee=bool(item.get("knee")),
                )
            )
    return found


def proofs_of(plain: Any, settings: Mapping[str, str]) -> list[Run]:
    """Return the proof run of a profile as far as its evidence keeps it: what NCCL chose."""
    if not isinstance(plain, dict) or plain.get("outcome") != "ok":
        return []
    kept = {
        "job_id": "proof",
        "settings": dict(settings),
        "outcome": "ok",
        "choices": plain.get("choices") or [],
        "transports": plain.get("transports") or {},
        "env_seen": plain.get("env_seen") or {},
    }
    return [validate_run(kept, where="profile.json: evidence.proof")]


def guards_of(plain: Any) -> list[Guarded]:
    """Return the guarded cases of a confirmation as a profile's evidence holds them."""
    found = []
    for item in plain if isinstance(plain, list) else ():
        if isinstance(item, dict) and isinstance(item.get("ratio"), int | float):
            found.append(
                Guarded(
                    case=str(item.get("case")),
                    ratio=float(item["ratio"]),
                    verdict=str(item.get("verdict")),
                    pairs=int(item.get("pairs") or 0),
                )
            )
    return found
