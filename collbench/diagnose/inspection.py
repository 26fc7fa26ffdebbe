"""One file in, one entry of inspect's document out: kind, facts, findings, or why it failed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collbench.diagnose.judge import judge
from collbench.errors import CollbenchError
from collbench.findings import Finding, ranked
from collbench.readers import Given, Reading, UnreadableError
from collbench.readers.recognise import read_file, read_sections
from collbench.readers.text import printable

GIVEN_KEYS = ("profile", "stored", "rank_gpu", "nccl_version")
_ERROR_NEXT = {
    "topo.truncated": "paste the whole output of `nvidia-smi topo -m`",
    "topo.unparseable": "paste it as plain text with its tabs: `nvidia-smi topo -m > topo.txt`",
    "bench.unparseable_layout": "paste the table with its header, from a current nccl-tests",
}


@dataclass(frozen=True, slots=True)
class Inspection:
    """What one file says."""

    path: str
    kind: str | None
    facts: dict[str, Any]
    findings: list[Finding] = field(default_factory=list)
    error: str | None = None
    reading: Reading | None = None

    def plain(self) -> dict[str, Any]:
        """Return the entry as JSON documents have it."""
        return {
            "path": self.path,
            "kind": self.kind,
            "facts": self.facts,
            "findings": [finding.plain() for finding in self.findings],
            "error": self.error,
        }


def inspect_file(
    path: Path,
    given: Given | None = None,
    kind: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Inspection:
    """Read and judge one file; what cannot be read safely is an error, never a guess."""
    known = given or Given()
    shown = printable(str(path))
    try:
        reading = read_file(path, known, kind, progress)
    except UnreadableError as error:
        reason = printable(error.reason, 120)
        return Inspection(shown, kind, {"error": reason}, _unreadable(error), reason)
    findings = ranked([*judge(reading, known), *_beside(reading, known)])
    return Inspection(shown, reading.kind, reading.facts, findings, None, reading)


def _unreadable(error: UnreadableError) -> list[Finding]:
    if not error.code:
        return []
    return [
        Finding(
            code=error.code,
            line=error.line,
            evidence=printable(error.reason, 120),
            next=_ERROR_NEXT.get(error.code, "paste the whole text"),
        )
    ]


def _beside(reading: Reading, given: Given) -> list[Finding]:
    """Return what is wrong in the other inputs of the file, each by itself."""
    found = []
    for sections in reading.signs.get("beside", ()):
        try:
            findings = judge(read_sections(sections, given), given)
        except UnreadableError as error:
            findings = _unreadable(error)
        source = printable(sections[0].name, 80) or None
        found += [replace(finding, source=finding.source or source) for finding in findings]
    return found


def load_given(path: Path) -> Given:
    """Read a file of what is known from elsewhere: an object with the keys of `GIVEN_KEYS`.

    Raises:
        CollbenchError: it cannot be read, or a field is of the wrong type.
    """
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CollbenchError(f"--given {path}: {error.strerror}", fix="check the path") from error
    except (ValueError, RecursionError) as error:
        raise CollbenchError(
            f"--given {path}: not JSON: {str(error)[:120]}",
            fix='write for example {"profile": {"NCCL_PROTO": "LL"}}',
        ) from error
    return given_of(plain, where=f"--given {path}")


def given_of(plain: Any, *, where: str) -> Given:
    """Check and return what is known from elsewhere.

    Raises:
        CollbenchError: it is no object, or a field is unknown or of the wrong type.
    """
    if isinstance(plain, Mapping) and isinstance(plain.get("given"), Mapping):
        plain = plain["given"]
    if not isinstance(plain, Mapping) or not set(plain) <= set(GIVEN_KEYS):
        raise CollbenchError(
            f"{where}: keys must be among {', '.join(GIVEN_KEYS)}",
            fix='write for example {"profile": {"NCCL_PROTO": "LL"}}',
        )
    profile = plain.get("profile")
    if profile is not None and not (
        isinstance(profile, Mapping) and all(isinstance(v, str) for v in profile.values())
    ):
        raise CollbenchError(f"{where}: profile: must map names to text", fix='"NAME": "VALUE"')
    stored, rank_gpu = plain.get("stored", {}), plain.get("rank_gpu", {})
    if not isinstance(stored, Mapping):
        raise CollbenchError(f"{where}: stored: must be an object", fix='{"gpus": 8}')
    if isinstance(rank_gpu, list):
        rank_gpu = {str(rank): gpu for rank, gpu in enumerate(rank_gpu)}
    if not isinstance(rank_gpu, Mapping) or not all(isinstance(v, int) for v in rank_gpu.values()):
        raise CollbenchError(f"{where}: rank_gpu: must map ranks to GPUs", fix='{"0": 4}')
    version = plain.get("nccl_version")
    if version is not None and not isinstance(version, str):
        raise CollbenchError(f"{where}: nccl_version: must be text", fix='"2.28.9"')
    return Given(profile=profile, stored=stored, rank_gpu=rank_gpu, nccl_version=version)
