"""Tables of nccl-tests, alone or with a log between their rows."""

from __future__ import annotations

from collbench.diagnose.log_rules import judge_log, version_changed
from collbench.findings import Finding
from collbench.readers import Given, Reading


def judge_table(reading: Reading, given: Given) -> list[Finding]:
    """Return wrong data, cut tables, another library, and what the log lines show."""
    facts = reading.facts
    found = []
    counted = [name for name in facts["columns"] if name.endswith("_wrong")]
    at = [facts["columns"].index(name) for name in counted]
    wrong = sum(row[i] or 0 for row in facts["rows"] for i in at)
    if wrong or facts["out_of_bounds"]:
        total = int(wrong or facts["out_of_bounds"])
        found.append(
            Finding(
                code="data.wrong_results",
                line=reading.line("wrong", "out_of_bounds"),
                evidence=f"{total} wrong elements",
                next="use none of these times; remove forced settings (LL128 first), then check "
                "peer access and memory",
            )
        )
    if "cut" in reading.lines:
        found.append(
            Finding(
                code="bench.truncated_table",
                line=reading.line("cut"),
                evidence="the table ends in an incomplete row, which was dropped",
                next="paste the whole output, or run the test again",
            )
        )
    stored = given.stored.get("nccl_version")
    log_findings = judge_log(reading, given) if _has_log(reading) else []
    if stored and facts["nccl_version"] and facts["nccl_version"] != str(stored):
        line = min(reading.signs["log"].versions.values(), default=None)
        found.append(version_changed(str(stored), [facts["nccl_version"]], line))
    return found + log_findings


def _has_log(reading: Reading) -> bool:
    return bool(reading.signs["log"].messages)
